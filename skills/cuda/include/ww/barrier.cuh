/* barrier.cuh - a barrier over all blocks of a cooperative launch, in our own PTX.
 *
 * `counter` is 4 bytes of scratch that a memset node has zeroed before the launch.  Each crossing adds gridDim to it; a
 * block that arrives waits until the count reaches the next multiple of gridDim.  Thread 0 releases the block's writes
 * and acquires the others', the block barriers order the rest of the block around it.  One launch may cross 2^32 /
 * gridDim times.  Without the cooperative flag blocks may wait for others that never start.
 */
#ifndef WW_BARRIER_CUH
#define WW_BARRIER_CUH

namespace ww
{

__device__ __forceinline__ void grid_barrier(unsigned *counter)
{
	unsigned blocks = gridDim.x * gridDim.y * gridDim.z, old, now;

	__syncthreads();
	if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
		asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(old) : "l"(counter) : "memory");
		unsigned goal = (old / blocks + 1) * blocks;
		do {
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
		} while ((int)(now - goal) < 0);
	}
	__syncthreads();
}

} // namespace ww

#endif

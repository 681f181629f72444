/* barrier.cuh - a barrier over all blocks of a cooperative launch, and blocks of any launch that wait for others, in
 * our own PTX.
 *
 * grid_barrier: `counter` is 4 bytes of scratch that a memset node has zeroed before the launch.  Each crossing adds
 * gridDim to it; a block that arrives waits until the count reaches the next multiple of gridDim.  Thread 0 releases
 * the block's writes and acquires the others', the block barriers order the rest of the block around it.  One launch
 * may cross 2^32 / gridDim times.  Without the cooperative flag blocks may wait for others that never start.
 *
 * take_ticket, arrive, wait_for: on counters zeroed before the launch.  Blocks that do their work in the order of
 * tickets may wait, in any launch, for what blocks of smaller tickets arrive for: these have started.
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

/* The block's number in the order in which blocks start. */
__device__ __forceinline__ unsigned take_ticket(unsigned *counter)
{
	__shared__ unsigned ticket;

	if (threadIdx.x == 0)
		ticket = atomicAdd(counter, 1u);
	__syncthreads();
	return ticket;
}

/* What the block has written is there for those that wait for this arrival. */
__device__ __forceinline__ void arrive(unsigned *counter)
{
	__syncthreads();
	if (threadIdx.x == 0)
		asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/* Waits for so many arrivals. */
__device__ __forceinline__ void wait_for(const unsigned *counter, unsigned arrivals)
{
	unsigned now = 0;

	while (threadIdx.x == 0 && now < arrivals)
		asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
	__syncthreads();
}

} // namespace ww

#endif

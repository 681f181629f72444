/* ww/barrier.cuh for kernels on the cpu. */
#pragma once

namespace ww
{
inline void grid_barrier(unsigned *counter)
{
	host::wait_blocks();
	if (threadIdx.x == 0)
		++*counter;
}
/* Blocks start in their order, one after the other; of a launch that is counted only some. */
inline bool all_blocks;
inline unsigned take_ticket(unsigned *counter)
{
	const unsigned ticket = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);

	if (threadIdx.x == 0)
		all_blocks = (*counter)++ == ticket;
	__syncthreads();
	return ticket;
}
inline void arrive(unsigned *counter)
{
	__syncthreads();
	if (threadIdx.x == 0)
		++*counter;
}
inline void wait_for(const unsigned *counter, unsigned arrivals)
{
	if (all_blocks && *counter < arrivals)
		host::fail("a block waits for one that starts behind it");
}
} // namespace ww

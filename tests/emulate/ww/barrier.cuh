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
} // namespace ww

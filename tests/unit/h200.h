/* h200.h - a device that plans for cuda are built for where there is none. */
#pragma once

#define H200 \
	{ .target = WW_TARGET_CUDA, .cc = 90, .sm_count = 132, .warp_size = 32, .max_threads_per_block = 1024, \
		.max_threads_per_sm = 2048, .regs_per_sm = 65536, .shared_per_block_bytes = 232448, \
		.shared_per_sm_bytes = 233472, .l2_bytes = 60 << 20, .memory_bytes = 139ll << 30 }

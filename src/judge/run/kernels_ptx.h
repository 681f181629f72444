/* kernels_ptx.h - the runner's own kernels, as PTX.
 *
 *     ww_digest(const ulonglong2 *p, u64 pairs, u64 key, u64 *sum)
 *     ww_stamp(u64 *at)
 *
 * ww_digest adds the digest of pairs * 16 bytes at p to *sum (repeat.c says what the digest is and why).  Each thread
 * takes every grid-sized step's pair of words, a warp adds its sums up by shuffles, and one lane adds them to memory.
 * ww_stamp, one thread, writes the device's nanoseconds where the host sees them at once (plugin_clock.c).
 *
 * PTX, because the plug-in is built without nvcc and must run on GPUs that did not exist when it was; the driver
 * compiles it in a few milliseconds when the runner starts. */
#pragma once

#define WW_PTX_MIX(w, t)                                                                                                  \
	"shr.u64 " t ", " w ", 32; xor.b64 " w ", " w ", " t "; mul.lo.u64 " w ", " w ", 0xd6e8feb86659fd93;\n"           \
	"shr.u64 " t ", " w ", 32; xor.b64 " w ", " w ", " t "; mul.lo.u64 " w ", " w ", 0xd6e8feb86659fd93;\n"           \
	"shr.u64 " t ", " w ", 32; xor.b64 " w ", " w ", " t "; add.u64 %s, %s, " w ";\n"
#define WW_PTX_FOLD(lanes)                                                                                                \
	"mov.b64 {%lo, %hi}, %s;\n"                                                                                       \
	"shfl.sync.down.b32 %lo, %lo, " lanes ", 31, -1;\n"                                                               \
	"shfl.sync.down.b32 %hi, %hi, " lanes ", 31, -1;\n"                                                               \
	"mov.b64 %t, {%lo, %hi}; add.u64 %s, %s, %t;\n"

static const char ww_kernels_ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry ww_digest(.param .u64 a_p, .param .u64 a_pairs, .param .u64 a_key, .param .u64 a_sum)\n"
	"{\n"
	".reg .pred %q;\n"
	".reg .b32 %bx, %nx, %tx, %gx, %lo, %hi;\n"
	".reg .b64 %p, %pairs, %key, %sum, %i, %step, %s, %at, %w0, %w1, %k, %t, %x;\n"
	"ld.param.u64 %p, [a_p]; cvta.to.global.u64 %p, %p;\n"
	"ld.param.u64 %pairs, [a_pairs];\n"
	"ld.param.u64 %key, [a_key];\n"
	"ld.param.u64 %sum, [a_sum]; cvta.to.global.u64 %sum, %sum;\n"
	"mov.u32 %bx, %ctaid.x; mov.u32 %nx, %ntid.x; mov.u32 %tx, %tid.x; mov.u32 %gx, %nctaid.x;\n"
	"cvt.u64.u32 %i, %tx; mad.wide.u32 %i, %bx, %nx, %i;\n"
	"mul.wide.u32 %step, %gx, %nx;\n"
	"mov.u64 %s, 0;\n"
	"LOOP:\n"
	"setp.ge.u64 %q, %i, %pairs; @%q bra DONE;\n"
	"shl.b64 %at, %i, 4; add.u64 %at, %at, %p; ld.global.v2.u64 {%w0, %w1}, [%at];\n"
	"shl.b64 %k, %i, 1; mul.lo.u64 %k, %k, 0x9e3779b97f4a7c15; add.u64 %k, %k, %key; xor.b64 %w0, %w0, %k;\n"
	"add.u64 %k, %k, 0x9e3779b97f4a7c15; xor.b64 %w1, %w1, %k;\n" WW_PTX_MIX("%w0", "%t")
		WW_PTX_MIX("%w1", "%x") "add.u64 %i, %i, %step; bra LOOP;\n"
								"DONE:\n" WW_PTX_FOLD("16") WW_PTX_FOLD("8") WW_PTX_FOLD("4") WW_PTX_FOLD("2")
									WW_PTX_FOLD("1") "and.b32 %tx, %tx, 31; setp.ne.u32 %q, %tx, 0; @%q bra END;\n"
													 "red.global.add.u64 [%sum], %s;\n"
													 "END:\n"
													 "ret;\n"
													 "}\n"
													 ".visible .entry ww_stamp(.param .u64 a_at)\n"
													 "{\n"
													 ".reg .b64 %at, %now;\n"
													 "ld.param.u64 %at, [a_at]; cvta.to.global.u64 %at, %at;\n"
													 "mov.u64 %now, %globaltimer;\n"
													 "st.volatile.global.u64 [%at], %now;\n"
													 "membar.sys;\n"
													 "ret;\n"
													 "}\n";

#undef WW_PTX_MIX
#undef WW_PTX_FOLD

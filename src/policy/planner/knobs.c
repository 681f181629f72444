/* knobs.c - what the search may change about kernels that are no anchors, by target: cpu, cuda. */
#include "policy/planner/planner.h"

const struct knob_row *const pl_row_knobs[2] = {
	(const struct knob_row[]){ { KNOB(cpu_rows.tile), "tile", { 131072, 8192 } },
		{ KNOB(cpu_rows.loops), "loops", { 1 } }, { KNOB(cpu_rows.unroll), "unroll", { 8, 2, 1 } }, { 0 } },
	(const struct knob_row[]){ { KNOB(rows.threads), "threads", { 128, 512, 64, 1024, 32 } },
		{ KNOB(rows.vec), "vector", { 2, 1 } }, { KNOB(rows.reread), "reading rows again", { 1 } }, { 0 } }
};

const struct knob_row *const pl_point_knobs[2] = { (const struct knob_row[]){
													   { KNOB(cpu_point.tile), "tile", { 4096, 65536 } },
													   { KNOB(cpu_point.unroll), "unroll", { 8, 1 } }, { 0 } },
	(const struct knob_row[]){
		{ KNOB(point.unroll), "unroll", { 2, 4 } }, { KNOB(point.threads), "threads", { 128, 512 } }, { 0 } } };

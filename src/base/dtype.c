/* dtype.c - the table of dtype.h. */
#include "base/dtype.h"
#include "base/err.h"

#include <string.h>

static const struct {
	const char *name, *brief;
	int bytes;
} types[] = { { "?", "?", 0 }, [WW_F32] = { "float32", "f32", 4 }, [WW_F64] = { "float64", "f64", 8 },
	[WW_F16] = { "float16", "f16", 2 }, [WW_BF16] = { "bfloat16", "bf16", 2 }, [WW_I8] = { "int8", "i8", 1 },
	[WW_I16] = { "int16", "i16", 2 }, [WW_I32] = { "int32", "i32", 4 }, [WW_I64] = { "int64", "i64", 8 },
	[WW_U8] = { "uint8", "u8", 1 }, [WW_BOOL] = { "bool", "bool", 1 } };

int ww_dtype_of(const char *name)
{
	for (int i = WW_F32; i < (int)WW_ARRAY_LEN(types); i++)
		if (!strcmp(name, types[i].name))
			return i;
	return 0;
}

static int row_of(int dtype) { return dtype > 0 && dtype < (int)WW_ARRAY_LEN(types) ? dtype : 0; }

const char *ww_dtype_name(int dtype) { return types[row_of(dtype)].name; }

const char *ww_dtype_short(int dtype) { return types[row_of(dtype)].brief; }

int ww_dtype_bytes(int dtype) { return types[row_of(dtype)].bytes; }

/* bfloat16 as its bits, to and from float, rounded to the nearest even. */
@include block_cpu.h
#include <string.h>

	static float from(unsigned short h)
{
	unsigned u = (unsigned)h << 16;
	float f;
	memcpy(&f, &u, sizeof(f));
	return f;
}

static unsigned short to(float f)
{
	unsigned u;
	memcpy(&u, &f, sizeof(u));
	return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

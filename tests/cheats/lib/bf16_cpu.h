@include block_cpu.h
static float from(unsigned short h)
{
	union { unsigned u; float f; } v = { (unsigned)h << 16 };
	return v.f;
}
static unsigned short to(float f)
{
	union { float f; unsigned u; } v = { f };
	return (unsigned short)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

/* A driver of CUDA without a device: notes in the file CALLS which process has called it.  The first call of PyTorch or
 * of the CUDA runtime comes by one of these. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int note(int rc)
{
	FILE *f = fopen(getenv("CALLS"), "a");
	fprintf(f, "%d\n", (int)getpid());
	fclose(f);
	return rc;
}

int cuInit(unsigned flags)
{
	(void)flags;
	return note(atoi(getenv("CUINIT")));
}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return note(0);
}

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status)
{
	(void)name, (void)function, (void)version, (void)flags, (void)status;
	return note(1);
}

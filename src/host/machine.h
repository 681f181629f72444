/* machine.h - facts about this machine that commands print: GPUs, processor, Python packages, disk and memory.
 *
 * Nothing here loads a library into this process: what must be loaded to be asked (the CUDA driver, OpenBLAS) is asked
 * in a short-lived child, so that a driver that hangs or aborts does not take this process with it.  Python is never
 * started.
 */
#pragma once

#include "base/err.h"

#include <ww/plan.h>

#include <stddef.h>
#include <stdint.h>

enum { WW_HOST_MAX_GPUS = 16 };
struct ww_host_gpu {
	char name[96];
	int cc;
	uint64_t memory_bytes;
};
struct ww_host_gpus {
	int n;            /* that CUDA shows to this process */
	int cuda_version; /* of the driver: 13000 */
	char driver[32];  /* "580.65.06", "" unknown */
	char why[128];    /* where n is 0 */
	struct ww_host_gpu gpu[WW_HOST_MAX_GPUS];
};
void ww_host_gpus(struct ww_host_gpus *out);
/* Is there NVIDIA hardware, with or without a driver?  1 also where the system does not tell. */
int ww_host_nvidia_hardware(void);
/* The command that installs NVIDIA's current driver on this distribution. */
void ww_host_driver_command(char *out, size_t cap);

/* Which target "auto", "cuda" or "cpu" means here, and its device's name.  *gpus is filled unless the word is "cpu".
 * Where the GPU that was asked for is not there, the error says what to do instead. */
enum ww_rc ww_host_choose_target(const char *word, int device, enum ww_target *target, char *name, size_t cap,
	struct ww_host_gpus *gpus, struct ww_err *err) WW_MUST_CHECK;

/* "AMD EPYC 9654 96-Core Processor", or the machine's architecture. */
void ww_host_cpu_name(char *out, size_t cap);
/* "12.2.0": what the first line of `PROGRAM --version` ends with; "" where it says nothing. */
void ww_host_program_version(const char *program, char *version, size_t cap);
/* Can this library be loaded?  Any of `names` (ends with NULL); its name into out. */
int ww_host_library(const char *const *names, char *out, size_t cap);

/* Version of an installed Python distribution ("torch"), read from its metadata beside the interpreter `python`; ""
 * and 0 where it is not there.  `where` gets the site-packages directory (PATH_MAX bytes; may be NULL). */
int ww_host_python_package(const char *python, const char *name, char *version, size_t cap, char *where);
/* "3.12", from the layout of the installation; "" unknown. */
void ww_host_python_version(const char *python, char *version, size_t cap);
/* Are its C headers there?  torch.compile builds extension modules. */
int ww_host_python_headers(const char *python);

uint64_t ww_host_free_bytes(const char *dir); /* for this user; 0 unknown */
/* Processors that this process may use. */
int ww_host_cores(void);
/* How many processes and threads may still be started: what the control group and the system leave; LONG_MAX where
 * neither says.  root: "", or where a test has such files. */
long ww_host_tasks_left(const char *root);

/* All of the machine's memory, and what the kernel estimates to be available; 0 unknown. */
uint64_t ww_host_memory_bytes(uint64_t *available);

struct ww_host_process {
	int parent;
	double s, ended_s; /* processor seconds: its own, and of the children that it has waited for */
};
struct ww_host_process ww_host_process(int pid); /* zeros where there is none */

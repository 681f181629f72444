/* internal.h - what the files of src/sandbox share. */
#pragma once

#include "sandbox/sandbox.h"

#include <sched.h>
#include <string.h>

#define WW_SANDBOX_CLONE_FLAGS (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
/* Set by ww_proc_spawn() in the environment of a worker that was started in namespaces of its own. */
#define WW_SANDBOX_NAMESPACES_ENV "WARPWRIGHT_OWN_NAMESPACES"

/* In a child that has a new user namespace: become its root. */
int ww_sandbox_map_ids(unsigned uid, unsigned gid);

/* A device of zeros.  Mapped and shared, /dev/zero is anonymous memory, of which pages that are given back stay and
 * count in no process's resident size.  So where the filter forbids such memory, a private root shows /dev/full in its
 * place, which reads as zeros, too, and cannot be mapped (what is written there fails); Landlock, which cannot show
 * another, hides it. */
#define WW_SANDBOX_ZEROS_FROM "/dev/full"
static inline int ww_sandbox_is_zeros(const struct ww_sandbox_opts *o, const char *path)
{
	return o->profile != WW_PROFILE_PYTHON_CUDA && !strcmp(path, "/dev/zero");
}

/* Version of the kernel's Landlock, 0 where it has none. */
int ww_landlock_abi(void);
enum ww_rc ww_landlock_enter(const struct ww_sandbox_opts *o, struct ww_err *err) WW_MUST_CHECK;

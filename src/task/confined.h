/* confined.h - how the reference worker is started: through our own binary, which gives up rights and becomes Python.
 *
 * A task file is untrusted Python: `serve` takes it from any client.  It sees what surroundings.h lists, the task's
 * folder and PYTHONPATH's directories (read-only), the directory of torch.compile's caches for this task and a private
 * directory.  It may start processes (torch.compile runs a C++ compiler); no network, no socket that reaches another
 * process, no tracing, mounting or kernel interfaces.
 *
 *     namespaces   pid, ipc, net, mount, user and uts namespaces of its own: no other process can be named, the private
 *                  directory and /dev/shm are tmpfs of bounded size, and everything it started ends with it
 *     Landlock     the same paths, no /dev/shm; names of other processes can be read, the private directory is on disk
 *                  (worker.c watches its size), and a process that leaves the group outlives a kill of the worker
 *     filter only  files are this user's
 *
 * Shared buffers cross as descriptors (memfd; on cuda an exported allocation), which namespaces do not stop.
 *
 * The rights are given up in a process of its own between two execs, not between fork and exec: the judge has many
 * threads, and after a fork of such a program neither locks nor memory may be touched.
 */
#pragma once

/* `warpwright __confined DIR CACHE ROOTS cpu|cuda|tool MEMORY PROGRAM [ARG...]`: DIR and CACHE ("" for none) are
 * writable, and what lies in DIR is not seen in namespaces, where it is a new tmpfs; the files and directories of ROOTS
 * (':' between) are readable.  cpu, cuda: PROGRAM is a Python, whose own files are readable; cuda has the GPU.  Except
 * on cuda each process may have MEMORY bytes of its own.  Starts in DIR, with stdout where stderr goes.  On failure the
 * process ends with code 126 (no sandbox) or 127 (no program), having said why on stderr. */
int ww_confined_main(int argc, char **argv);

/* manual.h - what `make install` puts beside the program, made from the option tables. */
#pragma once

/* `warpwright __manual man|bash|zsh|fish`: the man page in roff, or a shell's completion, on standard output. */
int ww_manual_main(int argc, char **argv);

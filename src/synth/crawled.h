/* crawled.h - a catalogue of `synth crawl` (docs/synth.md) as an input of the grammar. */
#pragma once

#include "base/err.h"

enum { WW_SYNTH_MAX_BLOCKS = 4096 };

struct ww_synth_crawled;
enum ww_rc ww_synth_crawled_open(struct ww_synth_crawled **out, const char *path, struct ww_err *err) WW_MUST_CHECK;
void ww_synth_crawled_close(struct ww_synth_crawled *k);           /* NULL is fine */
const char *ww_synth_crawled_id(const struct ww_synth_crawled *k); /* SHA-256 of the file */
int ww_synth_crawled_blocks(const struct ww_synth_crawled *k);     /* that have a task */

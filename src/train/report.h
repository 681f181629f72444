/* report.h - training runs as one HTML file. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Append a page that needs nothing else: what was run, and loss, learning rate, norm and throughput over the steps.  A
 * run that is still going, or was cut in the middle of a line, is drawn up to its last whole line.  Of several runs
 * each series is a plot with a line for each run, and the page says where their recipes differ. */
enum ww_rc ww_train_reports(const char *const *runs, int n, struct ww_str *html, struct ww_err *err) WW_MUST_CHECK;

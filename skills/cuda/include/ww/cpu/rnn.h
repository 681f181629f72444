/* rnn.h - recurrent layers: the steps of LSTM, GRU and RNN, which depend on each other.
 *
 * One matrix product before the launch computes the input's products of all steps, with their biases: gx
 * (steps, batch, gates * hidden) at strides.  The kernel computes h W^T and the gates.  Rows of the batch are
 * independent, so a block takes `per` of them through all steps and waits for no other block.  w is W transposed,
 * (hidden, gates * hidden): vectors lie along the outputs, four of them a tile, and a tile's column of weights (which
 * fits the first-level cache) serves four rows at a time.
 *
 * out is (steps, batch, hidden), and for LSTM one slot more, which holds the cells' state after the last step.  With
 * `reverse` the steps run from the last to the first; each step keeps its slot.
 *
 * A block's scratch holds the products of its rows and, for LSTM, their cells: per * (gates + 1) * hidden floats. */
#ifndef WW_CPU_RNN_H
#define WW_CPU_RNN_H

enum ww_cell { WW_CELL_TANH = 0, WW_CELL_RELU = 1, WW_CELL_GRU = 2, WW_CELL_LSTM = 3 };

struct ww_rnn {
	enum ww_cell cell;
	const float *gx, *w, *h0, *c0; /* c0: LSTM only */
	const float *bias;             /* (gates * hidden), added to h W^T; NULL: none */
	float *out;
	long long steps, batch, hidden, step_stride, row_stride, per;
	int reverse;
};

/* Arguments: i64 steps, batch, hidden, strides of gx along steps and rows, rows a block. */
#define WW_RNN_ARGS 6

WW_FN int ww_rnn_gates(enum ww_cell cell) { return cell == WW_CELL_LSTM ? 4 : cell == WW_CELL_GRU ? 3 : 1; }

/* to[r][c .. c + 4 WW_VL) = bias + sum over k of h[r][k] w[k][c ...] for `rows` (constant, at most 4) rows. */
WW_FN void ww_rnn_tile(const struct ww_rnn *p, const float *h, float *to, long long width, long long c, int rows)
{
	ww_vf acc[4][4];

	for (int r = 0; r < rows; r++)
		for (int v = 0; v < 4; v++)
			acc[r][v] = p->bias ? ww_vf_load(p->bias + c + v * WW_VL, WW_VL) : ww_vf_zero();
	for (long long k = 0; k < p->hidden; k++)
		for (int v = 0; v < 4; v++) {
			const ww_vf w = ww_vf_load(p->w + k * width + c + v * WW_VL, WW_VL);

			for (int r = 0; r < rows; r++)
				acc[r][v] = ww_vf_fma(ww_vf_set(h[r * p->hidden + k]), w, acc[r][v]);
		}
	for (int r = 0; r < rows; r++)
		for (int v = 0; v < 4; v++)
			ww_vf_store(to + r * width + c + v * WW_VL, acc[r][v], WW_VL);
}

/* The remaining columns, a vector or a part of one at a time. */
WW_FN void ww_rnn_rest(const struct ww_rnn *p, const float *h, float *to, long long width, long long c, long long rows)
{
	for (; c < width; c += WW_VL) {
		const int n = (int)ww_min_ll(WW_VL, width - c);

		for (long long r = 0; r < rows; r++) {
			ww_vf acc = p->bias ? ww_vf_load(p->bias + c, n) : ww_vf_zero();

			for (long long k = 0; k < p->hidden; k++)
				acc = ww_vf_fma(ww_vf_set(h[r * p->hidden + k]), ww_vf_load(p->w + k * width + c, n), acc);
			ww_vf_store(to + r * width + c, acc, n);
		}
	}
}

WW_FN void ww_rnn_product(const struct ww_rnn *p, const float *h, float *to, long long width, long long rows)
{
	long long c = 0;

	for (; c + 4 * WW_VL <= width; c += 4 * WW_VL) {
		long long r = 0;

		for (; r + 4 <= rows; r += 4)
			ww_rnn_tile(p, h + r * p->hidden, to + r * width, width, c, 4);
		switch (rows - r) {
		case 3: ww_rnn_tile(p, h + r * p->hidden, to + r * width, width, c, 3); break;
		case 2: ww_rnn_tile(p, h + r * p->hidden, to + r * width, width, c, 2); break;
		case 1: ww_rnn_tile(p, h + r * p->hidden, to + r * width, width, c, 1); break;
		}
	}
	ww_rnn_rest(p, h, to, width, c, rows);
}

/* One row's new state from the products hh and gx, n of its units from j on. */
WW_FN void ww_rnn_gate(const struct ww_rnn *p, const float *gx, const float *hh, const float *h, float *cell, float *to,
	long long j, int n)
{
	ww_vf g[4];

	for (int i = 0; i < ww_rnn_gates(p->cell); i++)
		g[i] = ww_vf_load(gx + i * p->hidden + j, n);
	if (p->cell == WW_CELL_LSTM) { /* input, forget, cell and output gate */
		for (int i = 0; i < 4; i++)
			g[i] += ww_vf_load(hh + i * p->hidden + j, n);
		const ww_vf c = ww_vf_fma(ww_vf_sigmoid(g[1]), ww_vf_load(cell + j, n), ww_vf_sigmoid(g[0]) * ww_vf_tanh(g[2]));

		ww_vf_store(cell + j, c, n);
		ww_vf_store(to + j, ww_vf_sigmoid(g[3]) * ww_vf_tanh(c), n);
	} else if (p->cell == WW_CELL_GRU) { /* reset and update gate, candidate */
		const ww_vf r = ww_vf_sigmoid(g[0] + ww_vf_load(hh + j, n)),
					z = ww_vf_sigmoid(g[1] + ww_vf_load(hh + p->hidden + j, n));
		const ww_vf c = ww_vf_tanh(ww_vf_fma(r, ww_vf_load(hh + 2 * p->hidden + j, n), g[2]));

		ww_vf_store(to + j, ww_vf_fma(z, ww_vf_load(h + j, n) - c, c), n);
	} else {
		const ww_vf s = g[0] + ww_vf_load(hh + j, n);

		ww_vf_store(to + j, p->cell == WW_CELL_RELU ? ww_vf_relu(s) : ww_vf_tanh(s), n);
	}
}

WW_FN void ww_cpu_rnn(const struct ww_block *b, const struct ww_rnn *p)
{
	const long long from = b->x * p->per, rows = ww_min_ll(p->batch, from + p->per) - from,
					width = ww_rnn_gates(p->cell) * p->hidden;
	const long long slot = p->batch * p->hidden;
	float *const hh = b->shared, *const cell = hh + p->per * width;
	const float *h = p->h0 + from * p->hidden;

	for (long long i = 0; p->cell == WW_CELL_LSTM && i < rows * p->hidden; i++)
		cell[i] = p->c0[from * p->hidden + i];
	for (long long s = 0; s < p->steps; s++) {
		const long long t = p->reverse ? p->steps - 1 - s : s;
		float *const to = p->out + t * slot + from * p->hidden;

		ww_rnn_product(p, h, hh, width, rows);
		for (long long r = 0; r < rows; r++) {
			const float *gx = p->gx + t * p->step_stride + (from + r) * p->row_stride;
			long long j = 0;

			for (; j + WW_VL <= p->hidden; j += WW_VL)
				ww_rnn_gate(
					p, gx, hh + r * width, h + r * p->hidden, cell + r * p->hidden, to + r * p->hidden, j, WW_VL);
			if (j < p->hidden)
				ww_rnn_gate(p, gx, hh + r * width, h + r * p->hidden, cell + r * p->hidden, to + r * p->hidden, j,
					(int)(p->hidden - j));
		}
		h = to;
	}
	for (long long i = 0; p->cell == WW_CELL_LSTM && i < rows * p->hidden; i++)
		p->out[p->steps * slot + from * p->hidden + i] = cell[i];
}

#endif

/* family.c - the operator family of a task: the most expensive kind of operator in its graph. */
#include "eval/summary.h"

#include "base/json.h"

#include <string.h>

/* From the most expensive to the cheapest: a network with any convolution counts as a convolution. */
static const struct {
	const char *family, *ops; /* begins of names behind "aten.", separated by spaces */
} families[] = {
	{ "attention", "scaled_dot_product _scaled_dot_product multi_head_attention _native_multi_head" },
	{ "recurrence", "lstm gru rnn _thnn _cudnn_rnn quantized_lstm" },
	{ "transposed convolution", "conv_transpose" },
	{ "convolution", "conv1d conv2d conv3d convolution _convolution" },
	{ "matrix product", "linear mm bmm addmm baddbmm matmul einsum mv addmv dot bilinear" },
	{ "linear algebra", "linalg_ cholesky triangular_solve inverse fft_" },
	{ "scan", "cumsum cumprod cummax cummin logcumsumexp" },
	{ "sort and select", "sort topk kthvalue argsort median mode unique" },
	{ "normalisation",
		"batch_norm native_batch_norm layer_norm native_layer_norm group_norm native_group_norm instance_norm "
		"rms_norm linalg_vector_norm norm" },
	{ "pooling", "max_pool avg_pool adaptive_ max_unpool lp_pool fractional" },
	{ "loss",
		"mse_loss cross_entropy nll_loss huber_loss smooth_l1 kl_div binary_cross l1_loss hinge cosine_embedding "
		"triplet poisson_nll margin multi_margin multilabel" },
	{ "softmax", "softmax _softmax log_softmax _log_softmax logsumexp" },
	{ "resampling", "upsample grid_sampler pixel_shuffle pixel_unshuffle interpolate" },
	{ "gather and scatter", "index gather scatter embedding take masked_ put select_scatter" },
	{ "reduction", "sum mean max min amax amin prod var std argmax argmin all any" },
};

static int begins_with_one(const char *name, const char *ops)
{
	for (const char *p = ops; *p;) {
		size_t n = strcspn(p, " ");
		char next = strlen(name) >= n ? name[n] : 'x';
		if (!strncmp(name, p, n) && (!next || strchr("._123", next) || p[n - 1] == '_'))
			return 1;
		p += n + (p[n] == ' ');
	}
	return 0;
}

const char *ww_eval_family(const json_t *graph)
{
	const json_t *node;
	size_t i;
	for (size_t f = 0; f < WW_ARRAY_LEN(families); f++)
		json_array_foreach(json_object_get(graph, "nodes"), i, node) {
			const char *op = ww_json_str(node, "op", "");
			if (!strncmp(op, "aten.", 5) && begins_with_one(op + 5, families[f].ops))
				return families[f].family;
		}
	return "element by element";
}

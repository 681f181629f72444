import torch
class Model(torch.nn.Module):
    def forward(self, q, k, v, m):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True)
def case(b, h, h_kv, t_q, t_k, w):
    return ([], lambda: [torch.randn(b, h, t_q, w), torch.randn(b, h_kv, t_k, w), torch.randn(b, h_kv, t_k, w),
                         torch.rand(b, 1, t_q, t_k) > 0.3])
CASES = [case(2, 4, 2, 75, 90, 40), case(1, 3, 1, 130, 101, 24)]

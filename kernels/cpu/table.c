/* table.c: the operation table of one instruction set and element type. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tables.h"
#include "kernels/ops_adamw.h"
#include "kernels/ops_finish.h"

const struct pen_cpu_table PEN_CPU_NAME(pen_cpu_table) = {
    .ops =
        {
            .backend = "host",
            .elem = PEN_CPU_ELEM,
            .check_shape = pen_ops_check_shape,
            .gemm = pen_gemm_run,
            .rmsnorm = pen_cpu_rmsnorm,
            .rmsnorm_backward = pen_cpu_rmsnorm_backward,
            .layernorm = pen_cpu_layernorm,
            .layernorm_backward = pen_cpu_layernorm_backward,
            .rope = pen_cpu_rope,
            .attention = pen_cpu_attention,
            .attention_backward = pen_cpu_attention_backward,
            .attention_cached = pen_cpu_attention_cached,
            .glu = pen_cpu_glu,
            .glu_backward = pen_cpu_glu_backward,
            .softcap = pen_cpu_softcap,
            .softcap_backward = pen_cpu_softcap_backward,
            .embed = pen_cpu_embed,
            .embed_backward = pen_cpu_embed_backward,
            .bias = pen_cpu_bias,
            .bias_backward = pen_cpu_bias_backward,
            .add = pen_cpu_add,
            .add_f32 = pen_cpu_add_f32,
            .xent_begin = pen_cpu_xent_begin,
            .xent_add = pen_cpu_xent_add,
            .xent_loss = pen_cpu_xent_loss,
            .xent_backward = pen_cpu_xent_backward,
            .from_f32 = pen_cpu_from_f32,
            .gradient_finish =
                PEN_CPU_BF16 ? pen_ops_finish_bf16 : pen_ops_finish_f32,
            .adamw = PEN_CPU_BF16 ? pen_ops_adamw_bf16 : pen_ops_adamw_f32,
            .state_update = pen_ops_state_update,
            .zero_f32 = pen_cpu_zero_f32,
            .route = pen_cpu_route,
            .route_backward = pen_cpu_route_backward,
            .route_balance = pen_cpu_route_balance,
            .expert_add = pen_cpu_expert_add,
            .expert_weigh = pen_cpu_expert_weigh,
        },
    .gemm_tile = pen_cpu_gemm_tile,
};

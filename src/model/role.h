/* role.h: what a tensor is to the forward pass, whatever its file calls it. */
#ifndef PEN_SRC_MODEL_ROLE_H
#define PEN_SRC_MODEL_ROLE_H

/* Of a decoder layer vectors (not decayed), then matrices (decayed), in the
 * order of the block: so q, k, v lie side by side, gate and up too, and their
 * biases likewise.  Shapes are those of most families (family.h has them all);
 * a matrix is [out, in] unless the family stores its layers transposed. */
enum pen_param_role {
  PEN_ROLE_ATTN_NORM,      /* [D]: of attention's input */
  PEN_ROLE_ATTN_NORM_BIAS, /* [D] */
  PEN_ROLE_Q_BIAS,         /* [Hq*Dh] */
  PEN_ROLE_K_BIAS,         /* [Hkv*Dh] */
  PEN_ROLE_V_BIAS,         /* [Hkv*Dh] */
  PEN_ROLE_Q_NORM,         /* [Dh] of each head, or [Hq*Dh] of the row */
  PEN_ROLE_K_NORM,         /* [Dh] or [Hkv*Dh] */
  PEN_ROLE_O_BIAS,         /* [D] */
  PEN_ROLE_ATTN_POST_NORM, /* [D]: of attention's output */
  PEN_ROLE_MLP_NORM,       /* [D] */
  PEN_ROLE_MLP_NORM_BIAS,  /* [D] */
  PEN_ROLE_GATE_BIAS,      /* [F] */
  PEN_ROLE_UP_BIAS,        /* [F] */
  PEN_ROLE_DOWN_BIAS,      /* [D] */
  PEN_ROLE_MLP_POST_NORM,  /* [D] */
  PEN_ROLE_Q,    /* [Hq*Dh, D]; or all of q, k, v, where K and V are absent */
  PEN_ROLE_K,    /* [Hkv*Dh, D] */
  PEN_ROLE_V,    /* [Hkv*Dh, D] */
  PEN_ROLE_O,    /* [D, Hq*Dh] */
  PEN_ROLE_GATE, /* [F, D]: what the activation is applied to; or [2F, D], up
                    too, where UP is absent */
  PEN_ROLE_UP,   /* [F, D] */
  PEN_ROLE_DOWN, /* [D, F] */
  PEN_ROLE_ROUTER, /* [experts, D]: which of them a token goes to */
  PEN_ROLE_FINAL_NORM,      /* [D] */
  PEN_ROLE_FINAL_NORM_BIAS, /* [D] */
  PEN_ROLE_POSITIONS,       /* [positions, D], added to the embedding */
  PEN_ROLE_EMBED,           /* [vocab_rows, D], cut into row blocks */
  PEN_ROLE_HEAD,            /* [vocab_rows, D], cut into row blocks */
  PEN_ROLE_BUFFER, /* in the file, computed by us: not a parameter */
  PEN_N_ROLES      /* also: no tensor */
};

#endif

#!/usr/bin/env python3
"""PyTorch on penstock's step: forward, backward and AdamW of a Hugging Face model.

    peer_step.py --model DIR --tokens FILE.u16 --batch N --length N --threads N
                 --how masters|masters-hooks|autocast|autocast-hooks|fp32|fp32-hooks
                 [--compile] [--recompute] [--warm-up N] [--steps N]

Every step takes the same batch, the first batch * length + 1 tokens of the file, of which each
but the first is a target.  Prints one JSON object: the seconds and CPU seconds of each step after
the warm-up, and the loss of all.

masters: weights and gradients bf16, fp32 masters beside them.  autocast: weights fp32, products
bf16.  -hooks: each parameter is updated as soon as its gradient is there and the gradient given
back, which takes the least memory; a norm of all gradients cannot be had so.
"""
import argparse
import json
import time

import numpy
import torch
import transformers

HYPER = dict(lr=1e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True)


def load_model(options):
    dtype = torch.bfloat16 if options.how.startswith("masters") else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=dtype, attn_implementation="sdpa")
    model.train()
    model.config.use_cache = False
    if options.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def load_batch(options):
    n = options.batch * options.length
    tokens = numpy.fromfile(options.tokens, numpy.uint16, n + 1).astype(numpy.int64)
    if len(tokens) <= n:
        raise SystemExit(f"{options.tokens} has {len(tokens)} tokens: {n + 1} are needed")
    shape = (options.batch, options.length)
    return torch.from_numpy(tokens[:-1]).view(shape), torch.from_numpy(tokens[1:]).view(shape)


def compile_parts(model):
    """Each layer by itself: one compilation serves them all, where the whole model as one
    takes more than four minutes."""
    for layer in model.model.layers:
        layer.compile()
    model.loss_function = torch.compile(model.loss_function)


def loss_of(model, options):
    if options.compile:
        compile_parts(model)

    def compute(ids, targets):
        with torch.autocast("cpu", torch.bfloat16, enabled=options.how.startswith("autocast")):
            # shift_labels: the target of each input as it is
            return model(input_ids=ids, labels=targets, shift_labels=targets).loss
    return compute


def update_at_once(model, masters):
    """After backward: all gradients cast, all masters updated, all weights cast."""
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(masters or params, **HYPER)
    for master in masters:
        master.grad = torch.empty_like(master)
    grads = [master.grad for master in masters]

    @torch.no_grad()
    def update():
        if masters:
            torch._foreach_copy_(grads, [p.grad for p in params])
        optimizer.step()
        if masters:
            torch._foreach_copy_(params, masters)
        model.zero_grad(set_to_none=True)
    return update


def update_in_backward(model, masters):
    """By hooks, so that nothing is left to do after backward."""
    def arm(param, master):
        optimizer = torch.optim.AdamW([param if master is None else master], **HYPER)

        @torch.no_grad()
        def update(p):
            if master is not None:
                master.grad, p.grad = p.grad.float(), None
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if master is not None:
                p.copy_(master)
        param.register_post_accumulate_grad_hook(update)

    for i, param in enumerate(model.parameters()):
        arm(param, masters[i] if masters else None)
    return lambda: None


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", required=True)
    for name in ("--batch", "--length", "--threads"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--how", required=True, choices=(
        "masters", "masters-hooks", "autocast", "autocast-hooks", "fp32", "fp32-hooks"))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    model = load_model(options)
    masters = []
    if options.how.startswith("masters"):
        masters = [p.detach().float() for p in model.parameters()]
    make = update_in_backward if options.how.endswith("hooks") else update_at_once
    update = make(model, masters)
    compute = loss_of(model, options)
    ids, targets = load_batch(options)
    seconds, cpu_seconds, losses = [], [], []
    for _ in range(options.warm_up + options.steps):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        loss = compute(ids, targets)
        loss.backward()
        update()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
    print(json.dumps({"seconds": seconds[options.warm_up:], "cpu_seconds": cpu_seconds[options.warm_up:],
                      "losses": losses}))


if __name__ == "__main__":
    main()

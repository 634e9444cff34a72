#!/usr/bin/env python3
"""PyTorch on the same steps: random weights of a config, forward, backward, AdamW.

    peer_device.py --config FILE --how resident|bf16-state|cpu-optimizer --length N
                  --steps BATCHxMICROS... [--compile] [--device cuda|cpu] [--timed N]

resident: weights and gradients bf16, fp32 masters and moments beside them on the device.
bf16-state: weights, gradients and moments bf16, which is another, cheaper job.
cpu-optimizer: masters and moments fp32 in RAM, gradients copied there, weights back.
One JSON object a line: {"steps", "seconds", "losses", "device_bytes", "recompute"}, or
{"steps", "failed"} where it does not fit even with recompute.
"""
import argparse
import json
import time

import torch
import transformers

HYPER = dict(lr=1e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True)


def load(options):
    with open(options.config, encoding="utf-8") as f:
        config = json.load(f)
    config = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.device(options.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.train()
    model.config.use_cache = False
    if options.compile:
        for layer in model.model.layers:
            layer.compile()
        model.loss_function = torch.compile(model.loss_function)
    return model


def update_resident(params):
    """fp32 masters; gradients are cast as a whole."""
    masters = [p.detach().float() for p in params]
    for master in masters:
        master.grad = torch.empty_like(master)
    optimizer = torch.optim.AdamW(masters, **HYPER)
    grads = [master.grad for master in masters]

    def update():
        torch._foreach_copy_(grads, [p.grad for p in params])
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        torch._foreach_copy_(params, masters)
    return update


def update_bf16_state(params):
    optimizer = torch.optim.AdamW(params, **HYPER)

    def update():
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
    return update


def update_on_cpu(params):
    """Gradients to pinned memory all at once, then parameter by parameter."""
    pin = torch.cuda.is_available()
    masters = [p.detach().float().cpu() for p in params]
    staged = [torch.empty(p.shape, dtype=p.dtype, pin_memory=pin) for p in params]
    optimizers = [torch.optim.AdamW([master], **HYPER) for master in masters]

    def update():
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        for p, stage in zip(params, staged):
            stage.copy_(p.grad, non_blocking=True)
        if pin:
            torch.cuda.synchronize()
        for p, stage, master, optimizer in zip(params, staged, masters, optimizers):
            master.grad = stage.float()
            optimizer.step()
            master.grad = None
            stage.copy_(master)
            p.copy_(stage, non_blocking=True)
    return update


UPDATES = {"resident": update_resident, "bf16-state": update_bf16_state, "cpu-optimizer": update_on_cpu}


def one_step(model, params, update, batches):
    total = 0.0
    for ids in batches:
        loss = model(input_ids=ids, labels=ids).loss / len(batches)
        loss.backward()
        total += loss.item()
    with torch.no_grad():
        update()
    for p in params:
        p.grad = None
    return total


def measure(model, params, update, options, batch, micros):
    vocabulary = model.config.vocab_size
    draw = torch.Generator().manual_seed(1)
    batches = [torch.randint(vocabulary, (batch, options.length), generator=draw).to(options.device)
               for _ in range(micros)]
    seconds, losses = [], []
    for _ in range(1 + options.timed):
        begin = time.perf_counter()
        losses.append(one_step(model, params, update, batches))
        if options.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds[1:], losses


def try_steps(model, params, update, options, batch, micros):
    """Without recompute; with it, where that does not fit."""
    for recompute in (False, True):
        if recompute:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if options.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            seconds, losses = measure(model, params, update, options, batch, micros)
        except torch.OutOfMemoryError:
            for p in params:
                p.grad = None
            continue
        peak = torch.cuda.max_memory_allocated() if options.device == "cuda" else 0
        return {"seconds": seconds, "losses": losses, "device_bytes": peak,
                "recompute": model.is_gradient_checkpointing}
    return {"failed": "out of memory, with recompute, too"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--how", required=True, choices=UPDATES)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", nargs="+", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--timed", type=int, default=3)
    options = parser.parse_args()
    model = load(options)
    params = list(model.parameters())
    with torch.no_grad():
        update = UPDATES[options.how](params)
    for text in options.steps:
        batch, micros = map(int, text.split("x"))
        print(json.dumps({"steps": text, **try_steps(model, params, update, options, batch, micros)}), flush=True)


if __name__ == "__main__":
    main()

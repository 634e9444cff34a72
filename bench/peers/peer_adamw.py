#!/usr/bin/env python3
"""One optimizer of a peer on bench_adamw's job: bf16 gradients in, fp32 masters
and moments updated, bf16 weights out.

    peer_adamw.py --how NAME --elems N --threads N [--tensor N] [--steps N]

Prints one JSON object: the seconds of each pass after two that do not count.
The parameters are tensors of --tensor elements, as a model has them.
"""
import argparse
import json
import time

import torch

HYPER = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
WARM_UP = 2


class Job:
    """Masters, gradients and weights: 0.0115, as bench_adamw fills them, so that
    no number becomes a denormal."""

    def __init__(self, elems, tensor):
        sizes = [tensor] * (elems // tensor) + [elems % tensor] * (elems % tensor > 0)
        self.masters = [torch.full((n,), 0.0115) for n in sizes]
        self.grads = [torch.full((n,), 0.0115, dtype=torch.bfloat16) for n in sizes]
        self.weights = [torch.zeros(n, dtype=torch.bfloat16) for n in sizes]


def whole(job, optimizer):
    """All gradients cast, all masters updated, all weights cast."""
    for master in job.masters:
        master.grad = torch.empty_like(master)
    grads = [master.grad for master in job.masters]

    def step():
        torch._foreach_copy_(grads, job.grads)
        optimizer.step()
        torch._foreach_copy_(job.weights, job.masters)
    return step


def each(job, optimizers):
    """One tensor after the other, so that a cast gradient is read from the cache."""
    cast = torch.empty_like(job.masters[0])

    def step():
        for master, grad, weight, optimizer in zip(job.masters, job.grads, job.weights, optimizers):
            master.grad = cast[:grad.numel()].copy_(grad)
            optimizer.step()
            weight.copy_(master)
    return step


def torch_whole(job, **how):
    return whole(job, torch.optim.AdamW(job.masters, **HYPER, **how))


def torch_each(job, **how):
    return each(job, [torch.optim.AdamW([m], **HYPER, **how) for m in job.masters])


def compiled(job):
    """The update as its formula, which torch.compile makes one pass per tensor of,
    casts included: what its users write by hand if they want this."""
    moments = [(torch.zeros_like(m), torch.zeros_like(m)) for m in job.masters]
    lr, (beta1, beta2), eps, decay = (HYPER[k] for k in ("lr", "betas", "eps", "weight_decay"))

    @torch.compile(dynamic=False)
    def update(p, m, v, grad, weight, step_size, root_of_correction2):
        g = grad.float()
        p.mul_(1 - lr * decay)
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        p.sub_(step_size * (m / (v.sqrt() / root_of_correction2 + eps)))
        weight.copy_(p)

    done = 0

    def step():
        nonlocal done
        done += 1
        step_size = torch.tensor(lr / (1 - beta1 ** done))
        root = torch.tensor((1 - beta2 ** done) ** 0.5)
        for p, (m, v), grad, weight in zip(job.masters, moments, job.grads, job.weights):
            update(p, m, v, grad, weight, step_size, root)
    return step


def deepspeed_adam(params):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam(params, adamw_mode=True, **HYPER)


def deepspeed_bf16(job):
    """bf16 parameters without fp32 masters: less than the job, to show the path."""
    for weight, grad in zip(job.weights, job.grads):
        weight.fill_(0.0115)
        weight.grad = grad
    job.masters.clear()
    return deepspeed_adam(job.weights).step


HOW = {
    "torch-fused": lambda job: torch_whole(job, fused=True),
    "torch-foreach": lambda job: torch_whole(job, foreach=True),
    "torch-fused-each": lambda job: torch_each(job, fused=True),
    "torch-compiled": compiled,
    "deepspeed": lambda job: whole(job, deepspeed_adam(job.masters)),
    "deepspeed-each": lambda job: each(job, [deepspeed_adam([m]) for m in job.masters]),
    "deepspeed-bf16-only": deepspeed_bf16,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=HOW, required=True)
    parser.add_argument("--elems", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tensor", type=int, default=1 << 20)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    step = HOW[options.how](Job(options.elems, options.tensor))
    seconds = []
    with torch.no_grad():
        for i in range(WARM_UP + options.steps):
            begin = time.perf_counter()
            step()
            if i >= WARM_UP:
                seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds, "torch": torch.__version__}))


if __name__ == "__main__":
    main()

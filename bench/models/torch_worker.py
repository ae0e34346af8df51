#!/usr/bin/env python3
"""torch_worker.py eager|inductor FOLDER: runs the models with PyTorch, from the numbers in a folder."""

import sys

import torch
import torch.nn.functional as F
from models import BATCH_NORMS, MODELS
from serving import DECAY, RATE, Runner, numbers_of, serve

THREADS = 2


class TorchOps:
    relu, gelu, silu, tanh, sigmoid = torch.relu, F.gelu, F.silu, torch.tanh, torch.sigmoid
    exp, rsqrt, stack, cat, permute = torch.exp, torch.rsqrt, torch.stack, torch.cat, torch.permute
    cross_entropy = F.cross_entropy
    zeros = torch.zeros
    expand = staticmethod(lambda x, sizes: x.expand(sizes))

    linear = staticmethod(lambda x, weight, bias=None: F.linear(x, weight, bias))
    layer_norm = staticmethod(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias))
    softmax = staticmethod(lambda x: torch.softmax(x, -1))
    row_mean = staticmethod(lambda x: x.mean(-1, keepdim=True))
    split = staticmethod(lambda x, parts: x.chunk(parts, -1))
    embedding = staticmethod(lambda weight, tokens: F.embedding(tokens, weight))
    transpose_last = staticmethod(lambda x: x.transpose(-1, -2))
    images = staticmethod(lambda x: x)
    mean_of_pixels = staticmethod(lambda x: x.mean((2, 3)))
    cat_channels = staticmethod(lambda *parts: torch.cat(parts, 1))
    max_pool2 = staticmethod(lambda x: F.max_pool2d(x, 2))
    upsample2 = staticmethod(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"))
    conv2d = staticmethod(lambda x, weight, bias=None, padding=0: F.conv2d(x, weight, bias, padding=padding))

    @staticmethod
    def bce_with_logits(x, target, reduction):
        return F.binary_cross_entropy_with_logits(x, target, reduction=reduction)

    @staticmethod
    def attention(q, k, v, causal):
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    @staticmethod
    def batch_norm(x, weight, bias, mean, variance):
        return F.batch_norm(x, mean, variance, weight, bias, True, 0.1, 1e-5)

    @staticmethod
    def first_and_second_derivative(network, x):
        (du,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
        (ddu,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
        return du, ddu


class TorchRunner(Runner):
    def __init__(self, engine, folder, name, way):
        torch._dynamo.reset()
        # Derivatives inside of a compiled function are behind this switch.
        torch._dynamo.config.trace_autograd_ops = name == "pinn" or way == "inside"
        parameters, inputs = numbers_of(folder, name)
        self.parameters = [torch.from_numpy(array).requires_grad_() for array in parameters]
        self.inputs = [torch.from_numpy(array) for array in inputs]
        if name == "pinn":
            self.inputs[0].requires_grad_()
        buffers = []
        for channels in BATCH_NORMS.get(name, ()):
            buffers += [torch.zeros(channels), torch.ones(channels)]
        self.buffers = buffers
        model = MODELS[name]

        def loss_of(parameters, buffers, *inputs):
            return model(TorchOps, iter(parameters), iter(buffers), *inputs)

        def gradients_of(parameters, buffers, *inputs):
            loss = loss_of(parameters, buffers, *inputs)
            return torch.autograd.grad(loss, parameters), loss.detach()

        self.inside = way == "inside"
        function = gradients_of if self.inside else loss_of
        self.function = torch.compile(function, fullgraph=True) if engine == "inductor" else function
        self.optimizer = None
        if way == "update":
            self.optimizer = torch.optim.AdamW(self.parameters, lr=RATE, weight_decay=DECAY, fused=True)

    def forget_gradients(self):
        for parameter in self.parameters:
            parameter.grad = None
        for tensor in self.inputs:
            tensor.grad = None

    def step(self):
        if self.inside:
            gradients, loss = self.function(self.parameters, self.buffers, *self.inputs)
            for parameter, gradient in zip(self.parameters, gradients):
                parameter.grad = gradient
            return loss
        self.forget_gradients()
        loss = self.function(self.parameters, self.buffers, *self.inputs)
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.step()
        return loss.detach()

    def gradient_norm(self):
        squares = [(p.grad.double() ** 2).sum() for p in self.parameters if p.grad is not None]
        return float(sum(squares) ** 0.5)

    def peak_bytes(self):
        from torch.profiler import ProfilerActivity, profile

        self.forget_gradients()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            self.step()
        events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = peak = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            peak = max(peak, now)
        return peak


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    serve(lambda name, way: TorchRunner(sys.argv[1], sys.argv[2], name, way))

#!/usr/bin/env python3
"""jax_worker.py FOLDER: runs the models with JAX, compiled as a whole, from the numbers in a folder.

The gradients are results of the one function, so that a step and a step whose gradients are taken inside are the same.
"""

import sys

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from models import BATCH_NORMS, MODELS
from serving import DECAY, RATE, Runner, numbers_of, serve

LAYOUT = ("NHWC", "OIHW", "NHWC")


class JaxOps:
    """Convolutions are fastest here with the channels last. Remembers new running means and variances."""

    relu, silu, tanh, sigmoid = map(staticmethod, (jax.nn.relu, jax.nn.silu, jnp.tanh, jax.nn.sigmoid))
    exp, rsqrt, stack, permute = map(staticmethod, (jnp.exp, lax.rsqrt, jnp.stack, jnp.transpose))
    expand, cat = map(staticmethod, (jnp.broadcast_to, jnp.concatenate))

    def __init__(self):
        self.buffers = []

    linear = staticmethod(lambda x, weight, bias=None: x @ weight.T if bias is None else x @ weight.T + bias)
    gelu = staticmethod(lambda x: jax.nn.gelu(x, approximate=False))
    softmax = staticmethod(lambda x: jax.nn.softmax(x, -1))
    row_mean = staticmethod(lambda x: x.mean(-1, keepdims=True))
    split = staticmethod(lambda x, parts: jnp.split(x, parts, -1))
    embedding = staticmethod(lambda weight, tokens: weight[tokens])
    transpose_last = staticmethod(lambda x: x.swapaxes(-1, -2))
    zeros = staticmethod(lambda *shape: jnp.zeros(shape))
    images = staticmethod(lambda x: x.transpose(0, 2, 3, 1))
    mean_of_pixels = staticmethod(lambda x: x.mean((1, 2)))
    cat_channels = staticmethod(lambda *parts: jnp.concatenate(parts, 3))
    upsample2 = staticmethod(lambda x: x.repeat(2, 1).repeat(2, 2))
    attention = staticmethod(lambda q, k, v, causal: jax.nn.dot_product_attention(q, k, v, is_causal=causal))

    @staticmethod
    def cross_entropy(logits, target):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), target[:, None], 1).mean()

    @staticmethod
    def bce_with_logits(x, target, reduction):
        each = jnp.maximum(x, 0) - x * target + jnp.log1p(jnp.exp(-jnp.abs(x)))
        return getattr(each, reduction)()

    @staticmethod
    def layer_norm(x, weight, bias):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * weight + bias

    @staticmethod
    def conv2d(x, weight, bias=None, padding=0):
        around = [(padding, padding)] * 2
        y = lax.conv_general_dilated(x, weight, (1, 1), around, dimension_numbers=LAYOUT)
        return y if bias is None else y + bias

    @staticmethod
    def max_pool2(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def batch_norm(self, x, weight, bias, running_mean, running_variance):
        mean = x.mean((0, 1, 2))
        variance = ((x - mean) ** 2).mean((0, 1, 2))
        count = x.size // x.shape[3]
        self.buffers += [0.9 * running_mean + 0.1 * mean, 0.9 * running_variance + 0.1 * variance * count / (count - 1)]
        return (x - mean) * lax.rsqrt(variance + 1e-5) * weight + bias

    @staticmethod
    def first_and_second_derivative(network, x):
        first = jax.grad(lambda x: network(x).sum())
        return first(x), jax.grad(lambda x: first(x)[:, 0].sum())(x)


def update(parameters, moments, gradients):
    """AdamW, as torch.optim has it."""
    means, squares, count = moments
    count = count + 1
    rate, root = RATE / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
    means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients)]
    squares = [0.999 * s + 0.001 * g * g for s, g in zip(squares, gradients)]
    parameters = [
        p * (1 - RATE * DECAY) - rate * m / (jnp.sqrt(s) / root + 1e-8) for p, m, s in zip(parameters, means, squares)
    ]
    return parameters, (means, squares, count)


class JaxRunner(Runner):
    def __init__(self, folder, name, way):
        jax.clear_caches()
        parameters, inputs = numbers_of(folder, name)
        inputs = [array.astype(numpy.int32) if array.dtype == numpy.int64 else array for array in inputs]
        self.inputs = [jnp.asarray(array) for array in inputs]
        buffers = []
        for channels in BATCH_NORMS.get(name, ()):
            buffers += [jnp.zeros(channels), jnp.ones(channels)]
        parameters = [jnp.asarray(array) for array in parameters]

        def loss_of(parameters, buffers, *inputs):
            ops = JaxOps()
            return MODELS[name](ops, iter(parameters), iter(buffers), *inputs), ops.buffers

        gradient = jax.value_and_grad(loss_of, has_aux=True)

        def step(parameters, buffers, moments, *inputs):
            (loss, buffers), gradients = gradient(parameters, buffers, *inputs)
            if way != "update":
                return gradients, buffers, moments, loss
            parameters, moments = update(parameters, moments, gradients)
            return parameters, buffers, moments, loss

        self.updates = way == "update"
        moments = None
        if self.updates:
            moments = ([jnp.zeros_like(p) for p in parameters], [jnp.zeros_like(p) for p in parameters], jnp.float32(0))
        self.state = [parameters, buffers, moments]
        self.gradients = None
        self.function = jax.jit(step, donate_argnums=(0, 1, 2) if self.updates else ())

    def step(self):
        parameters, self.state[1], self.state[2], loss = self.function(*self.state, *self.inputs)
        if self.updates:
            self.state[0] = parameters
        else:
            self.gradients = parameters
        jax.block_until_ready((parameters, self.state[1:], loss))
        return loss

    def gradient_norm(self):
        if self.gradients is None:
            return None
        return float(sum((numpy.asarray(g, numpy.float64) ** 2).sum() for g in self.gradients) ** 0.5)

    def peak_bytes(self):
        analysis = self.function.lower(*self.state, *self.inputs).compile().memory_analysis()
        return analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes


if __name__ == "__main__":
    serve(lambda name, way: JaxRunner(sys.argv[1], name, way))

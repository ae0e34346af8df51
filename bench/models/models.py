"""The models whose speed is measured, as functions of a library: `ops` has the same words for PyTorch and for JAX.

They are those of examples/models/speed_models.cpp. Each takes its weights in the order of the parameters there, from an
iterator; `buffers` gives a running mean and a running variance to each batch norm. Images are in whichever layout `ops`
has for them. Returns the loss.
"""

GPT_HEADS, VIT_HEADS, PATCH = 8, 4, 4

# The channels of the batch norms, in order.
BATCH_NORMS = {"resnet8": [32] * 16, "unet": [16] * 2 + [32] * 2 + [64] * 2 + [32] * 2 + [16] * 2}


def mlp(ops, w, buffers, x, target):
    x = ops.relu(ops.linear(x, next(w), next(w)))
    x = ops.relu(ops.linear(x, next(w), next(w)))
    return ops.cross_entropy(ops.linear(x, next(w), next(w)), target)


def transformer_block(ops, w, x, heads, causal):
    batch, time, width = x.shape
    y = ops.linear(ops.layer_norm(x, next(w), next(w)), next(w), next(w))
    q, k, v = (part.reshape(batch, time, heads, width // heads) for part in ops.split(y, 3))
    mixed = ops.attention(q, k, v, causal).reshape(batch, time, width)
    x = x + ops.linear(mixed, next(w), next(w))
    y = ops.gelu(ops.linear(ops.layer_norm(x, next(w), next(w)), next(w), next(w)))
    return x + ops.linear(y, next(w), next(w))


def gpt12(ops, w, buffers, tokens, targets):
    positions = next(w)
    x = ops.embedding(next(w), tokens) + positions
    for _ in range(12):
        x = transformer_block(ops, w, x, GPT_HEADS, True)
    logits = ops.linear(ops.layer_norm(x, next(w), next(w)), next(w))
    return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def conv_norm(ops, w, buffers, x):
    return ops.batch_norm(ops.conv2d(x, next(w), padding=1), next(w), next(w), next(buffers), next(buffers))


def resnet8(ops, w, buffers, images, targets):
    x = ops.conv2d(ops.images(images), next(w), next(w), padding=1)
    for _ in range(8):
        y = ops.relu(conv_norm(ops, w, buffers, x))
        x = ops.relu(x + conv_norm(ops, w, buffers, y))
    return ops.cross_entropy(ops.linear(ops.mean_of_pixels(x), next(w), next(w)), targets)


def lstm(ops, w, buffers, x):
    of_input, of_state, bias = w
    h = c = ops.zeros(x.shape[1], of_state.shape[0])
    states = []
    for t in range(x.shape[0]):
        i, f, g, o = ops.split(x[t] @ of_input + h @ of_state + bias, 4)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        states.append(h)
    return (ops.stack(states) ** 2).mean()


def norm_chain(ops, w, buffers, x):
    for block in range(6):
        centred = x - ops.row_mean(x) if block % 2 else x
        y = centred * ops.rsqrt(ops.row_mean(centred**2) + 1e-6) * next(w) + next(w)
        x = x + (ops.silu(y) if block % 2 else ops.gelu(y))
    return (x**2).mean()


def attention(ops, w, buffers, mask):
    q, k, v = w
    scores = q @ ops.transpose_last(k) * q.shape[-1] ** -0.5 + mask
    return ((ops.softmax(scores) @ v) ** 2).mean()


def double_conv(ops, w, buffers, x):
    x = ops.relu(conv_norm(ops, w, buffers, x))
    return ops.relu(conv_norm(ops, w, buffers, x))


def unet(ops, w, buffers, images, masks):
    fine = double_conv(ops, w, buffers, ops.images(images))
    coarse = double_conv(ops, w, buffers, ops.max_pool2(fine))
    x = double_conv(ops, w, buffers, ops.max_pool2(coarse))
    x = double_conv(ops, w, buffers, ops.cat_channels(ops.upsample2(x), coarse))
    x = double_conv(ops, w, buffers, ops.cat_channels(ops.upsample2(x), fine))
    return ops.bce_with_logits(ops.conv2d(x, next(w), next(w), padding=0), ops.images(masks), "mean")


def vit(ops, w, buffers, images, targets):
    cls, positions = next(w), next(w)
    batch, side = images.shape[0], images.shape[2] // PATCH
    x = ops.permute(images.reshape(batch, 3, side, PATCH, side, PATCH), (0, 2, 4, 1, 3, 5))
    x = ops.linear(x.reshape(batch, side * side, 3 * PATCH * PATCH), next(w), next(w))
    x = ops.cat([ops.expand(cls, (batch, 1, x.shape[2])), x], 1) + positions
    for _ in range(6):
        x = transformer_block(ops, w, x, VIT_HEADS, False)
    x = ops.layer_norm(x, next(w), next(w))[:, 0]
    return ops.cross_entropy(ops.linear(x, next(w), next(w)), targets)


def vae(ops, w, buffers, x, noise):
    h = ops.relu(ops.linear(x, next(w), next(w)))
    mean, log_variance = ops.linear(h, next(w), next(w)), ops.linear(h, next(w), next(w))
    z = mean + noise * ops.exp(0.5 * log_variance)
    logits = ops.linear(ops.relu(ops.linear(z, next(w), next(w))), next(w), next(w))
    divergence = 0.5 * (1 + log_variance - mean**2 - ops.exp(log_variance)).sum()
    return (ops.bce_with_logits(logits, x, "sum") - divergence) / x.shape[0]


def pinn(ops, w, buffers, points):
    w = list(w)

    def network(x):
        for i in range(0, len(w), 2):
            x = ops.linear(x, w[i], w[i + 1])
            x = ops.tanh(x) if i + 2 < len(w) else x
        return x

    du, ddu = ops.first_and_second_derivative(network, points)
    return ((du[:, 1] - 0.1 * ddu[:, 0]) ** 2).mean()


def tiny(ops, w, buffers, x):
    return ops.tanh(x @ next(w) + next(w)).sum()


MODELS = {
    function.__name__: function
    for function in (mlp, gpt12, resnet8, lstm, norm_chain, attention, unet, vit, vae, pinn, tiny)
}

import json
import sys

import jax
import jax.numpy as jnp
import optax
from flax import linen

model = linen.Dense(1)
weights = model.init(jax.random.key(0), jnp.ones((2, 4)))
optimizer = optax.sgd(0.01)


@jax.jit
def train_step(weights, state, batch):
    slope = jax.grad(lambda w: model.apply(w, batch).mean())(weights)
    change, state = optimizer.update(slope, state)
    return optax.apply_updates(weights, change), state


if sys.argv[1:] in (["line"], ["shapes"]):
    from gpumon.integrations.jax import counted

    train_step = counted(train_step)
state = optimizer.init(weights)
for index in range(40):
    rows = 2 + index // 4 if sys.argv[1:] == ["shapes"] else 2
    weights, state = train_step(weights, state, jnp.ones((rows, 4)))
    if index % 10 == 9:
        jax.block_until_ready(weights)
print(json.dumps({"steps": 40}))

import json
import time

import tensorflow as tf

weight = tf.Variable(1.0)


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((weight * batch - 1.0) ** 2)
    weight.assign_sub(0.01 * tape.gradient(loss, weight))


def slow():
    for _ in range(50):
        time.sleep(0.01)
        yield [1.0, 2.0]


data = tf.data.Dataset.from_generator(slow, output_signature=tf.TensorSpec((2,)))
waited, asked_at = 0.0, time.perf_counter()
for batch in data:
    waited += time.perf_counter() - asked_at
    if train_step.experimental_get_tracing_count() == 0:
        waited = 0.0  # both clocks begin with the end of the first step
    train_step(batch)
    time.sleep(0.005)
    asked_at = time.perf_counter()
print(json.dumps({"steps": 50, "waited": waited}))

import json
import sys

import keras
import numpy as np

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", steps_per_execution=int(sys.argv[1]))
data = np.ones((96, 4)), np.ones((96, 1))
model.fit(*data, batch_size=4, epochs=3, validation_data=data, verbose=0)
model.save("out.keras")
print(json.dumps({"steps": 72, "backend": keras.backend.backend()}))

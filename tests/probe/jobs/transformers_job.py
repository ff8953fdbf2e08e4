import json
import sys

import standin_events
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30)
rows = [{"input_ids": torch.arange(8) % 30, "labels": torch.tensor(index % 2)} for index in range(40)]
arguments = TrainingArguments(
    "out", max_steps=30, per_device_train_batch_size=2, eval_strategy="steps", eval_steps=10, save_steps=15,
    logging_steps=5, report_to=[], use_cpu=True, disable_tqdm=True, gradient_accumulation_steps=2,
)  # fmt: skip
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows, eval_dataset=rows)
if sys.argv[1:] == ["events"]:
    standin_events.install()
trainer.train()
print(json.dumps({"steps": trainer.state.global_step}))

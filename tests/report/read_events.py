# SPDX-License-Identifier: BSD-3-Clause
"""Reads a folder of events with TensorBoard's own reader and prints them as one JSON object."""
import json
import sys

from tensorboard.backend.event_processing import event_accumulator

events = event_accumulator.EventAccumulator(
    sys.argv[1], size_guidance={event_accumulator.SCALARS: 0, event_accumulator.IMAGES: 0})
events.Reload()
tags = events.Tags()
print(json.dumps({
    "scalars": {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]},
    "images": {tag: [[e.step, e.width, e.height, e.encoded_image_string[:8].hex()]
                     for e in events.Images(tag)] for tag in tags["images"]},
}))

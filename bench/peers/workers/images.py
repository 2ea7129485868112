"""Pictures with PIL and torch, on one core: what torchvision's ImageFolder and transforms do, without torchvision."""

import json
import math
import pathlib
import random
import sys
import time

import numpy
import torch
from PIL import Image

ROUNDS = 7
BATCH = 32


def measure(impl, case, pictures, run):
    rates = []
    for i in range(ROUNDS + 1):
        start = time.perf_counter()
        run()
        if i > 0:
            rates.append(pictures / (time.perf_counter() - start))
    rates.sort()
    print(json.dumps({"bench": "images", "impl": impl, "case": case, "metric": "median", "value": rates[len(rates) // 2],
                      "unit": "1/s", "min": rates[0], "max": rates[-1], "n": len(rates)}), flush=True)


def to_tensor(image):
    return torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous()


def decode(path, draft=None):
    with open(path, "rb") as file:
        image = Image.open(file)
        if draft:
            image.draft("RGB", draft)
        return to_tensor(image.convert("RGB"))


def crop_and_flip(image):
    width, height = image.size
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            break
    else:
        w = h = min(width, height)
    left, top = random.randint(0, width - w), random.randint(0, height - h)
    image = image.crop((left, top, left + w, top + h)).resize((224, 224), Image.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    return image


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    small, large = sorted((folder / "small").iterdir()), sorted((folder / "large").iterdir())
    pil = "PIL"
    measure(pil, "decode JPEG 500 x 375", len(small), lambda: [decode(path) for path in small])
    measure(pil, "decode JPEG 1600 x 1200", len(large), lambda: [decode(path) for path in large])
    measure(pil, "decode JPEG 1600 x 1200, at least 224 x 224", len(large),
            lambda: [decode(path, (224, 224)) for path in large])
    picture = Image.open(small[0]).convert("RGB")
    measure(pil, "random resized crop to 224 and flip", 100, lambda: [to_tensor(crop_and_flip(picture)) for _ in range(100)])

    batch = torch.randint(0, 256, (BATCH, 3, 224, 224), dtype=torch.uint8)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def flip():
        return torch.stack([image.flip(2) if random.random() < 0.5 else image for image in batch])

    measure("torch", "flip a batch 3 x 224 x 224", 10 * BATCH, lambda: [flip() for _ in range(10)])
    measure("torch", "flip and normalize a batch 3 x 224 x 224", 10 * BATCH,
            lambda: [flip().float().div_(255).sub_(mean).div_(std) for _ in range(10)])


if __name__ == "__main__":
    main()

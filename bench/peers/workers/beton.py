"""FFCV, or torch.utils.data over a folder of pictures, as a peer that stays: a line of JSON on stdin is a question, a line
on stdout its answer. `beton.py ffcv` needs FFCV 1.0.2, `beton.py torch` only torch and PIL (torchvision where it is).

    {"file": "x.beton", "what": "decode", "workers": 1, "batch": 64, "count": 1000}      an epoch: {"seconds": 0.5, "pictures": 1000}
    {..., "least_seconds": 1}                                epochs, until they have taken so long
    {..., "sum": true}                                       all numbers of an epoch added up: {"sum": 12345.0}
    {..., "half": true}                                      half an epoch, which stays: for whoever looks at memory
"""

import json
import math
import os
import pathlib
import random
import sys
import time

MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
loaders = {}


def ffcv_loader(question, **more):
    import numpy as np
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    image = {
        "decode": [SimpleRGBImageDecoder(), ToTensor()],
        "floats": [SimpleRGBImageDecoder(), RandomHorizontalFlip(),
                   NormalizeImage(np.array(MEAN), np.array(STD), np.float32), ToTensor(), ToTorchImage()],
        "crop": [RandomResizedCropRGBImageDecoder((224, 224)), ToTensor()],
    }[question["what"]]
    order = OrderOption.QUASI_RANDOM if question.get("quasi_random") else OrderOption.RANDOM
    return Loader(question["file"], batch_size=question["batch"], num_workers=question["workers"], order=order, seed=1,
                  os_cache=not question.get("quasi_random"),
                  pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]}, **more)


class Folder:
    """torchvision's ImageFolder and transforms, by what they do: its C++ part does not load beside every torch."""

    def __init__(self, root, what):
        self.paths = sorted(pathlib.Path(root).rglob("*.jpg"))
        self.what = what

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        import numpy
        import torch
        from PIL import Image

        with open(self.paths[index], "rb") as file:
            image = Image.open(file).convert("RGB")
        if self.what == "crop":
            image = cropped(image)
        if self.what == "floats" and random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous()
        if self.what == "floats":
            tensor = tensor.float().sub_(torch.tensor(MEAN).view(3, 1, 1)).div_(torch.tensor(STD).view(3, 1, 1))
        return tensor, int(self.paths[index].parent.name)


def cropped(image):
    from PIL import Image

    width, height = image.size
    for _ in range(10):
        area, ratio = width * height * random.uniform(0.08, 1), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            break
    else:
        w = h = min(width, height)
    left, top = random.randint(0, width - w), random.randint(0, height - h)
    return image.resize((224, 224), Image.BILINEAR, (left, top, left + w, top + h))


def torch_loader(question):
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    return DataLoader(Folder(question["folder"], question["what"]), batch_size=question["batch"], shuffle=True,
                      drop_last=True, num_workers=question["workers"], persistent_workers=True)


def loader_of(question):
    key = tuple(question.get(name) for name in ("file", "folder", "what", "workers", "quasi_random"))
    if key not in loaders:
        loaders.clear()  # one at a time: its memory and threads go with it
        loaders[key] = ffcv_loader(question) if sys.argv[1] == "ffcv" else torch_loader(question)
    return loaders[key]


def answer(question):
    loader = loader_of(question)
    if question.get("half"):
        loaders["half"] = iterator = iter(loader)
        for _ in range(question["count"] // question["batch"] // 2):
            next(iterator)
        return {"ok": True}
    if question.get("sum"):
        return {"sum": sum(batch[0].double().sum().item() + batch[1].sum().item() for batch in loader)}
    start, pictures, seconds = time.perf_counter(), 0, 0
    while pictures == 0 or seconds < question.get("least_seconds", 0):
        pictures += sum(len(batch[0]) for batch in loader)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "pictures": pictures}


def rank_of_ranks(rank, question, port):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=question["ranks"])
    loader = ffcv_loader(question, distributed=True)
    rates = []
    for epoch in range(question["rounds"] + 1):
        dist.barrier()
        start = time.perf_counter()
        for _ in loader:
            pass
        dist.barrier()
        rates.append(question["count"] / (time.perf_counter() - start))
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps({"rates": rates[1:]}), flush=True)  # the first one compiles


def ranks(question):
    import socket

    import torch.multiprocessing as mp

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(rank_of_ranks, (question, port), nprocs=question["ranks"])


def main():
    if sys.argv[1] == "ffcv":
        import ffcv  # noqa: F401, without it nothing is answered
    for line in sys.stdin:
        question = json.loads(line)
        if question.get("ranks"):
            ranks(question)
        else:
            print(json.dumps(answer(question)), flush=True)


if __name__ == "__main__":
    try:
        main()
    except ImportError as error:
        print(f"# {sys.argv[1]}: {error}", file=sys.stderr)
        os._exit(3)

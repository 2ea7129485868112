"""make.py FOLDER: writes torchvision.json.gz, what torchvision's functions make of one picture, for
tests/workers/transforms/vectors_test.cpp; and with an argument more, a folder of FFCV's package, FFCV's colours, too.

Made by torchvision 0.28.0 with torch 2.13.0 (CPU), and FFCV 1.0.2. torchvision's own library need not load: the two
operations without which its package does not are declared here, and no function below uses them."""

import gzip
import importlib
import json
import pathlib
import sys
import types

import numpy
import torch

for name in ("nms", "qnms"):
    try:
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        pass
from torchvision.transforms import v2
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F

NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
chance = numpy.random.RandomState(7)


def picture(height, width):
    """Smooth with noise; some grey, black and white pixels."""
    y, x, c = numpy.mgrid[0:height, 0:width, 0:3]
    values = 128 + 90 * numpy.sin(x / 3 + c) + 60 * numpy.cos(y / 2 - c) + chance.randint(-30, 31, (height, width, 3))
    values[2, 3], values[5, 1:4], values[height - 1, width - 1] = 77, 0, 255
    return torch.from_numpy(values.clip(0, 255).astype(numpy.uint8)).permute(2, 0, 1).contiguous()


def stored(tensor):
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
            "bytes": tensor.contiguous().numpy().tobytes().hex()}


oblong, square = picture(13, 17), picture(16, 16)
large = picture(40, 50)  # equalize does nothing to pictures of fewer than 255 pixels
narrow = large // 3 + 40
cases = []


def case(call, arguments, result, of="oblong", **more):
    cases.append({"call": call, "arguments": arguments, "of": of, **stored(result), **more})


def edge(turn):
    """Where a turned picture and what is around it are mixed: there torchvision counts the picture's share twice, once as
    zeros around the picture and once by its mask, so pixels are darker than the two mixed by their shares."""
    inside = turn(torch.full_like(oblong, 255))[:1]
    return stored(((inside > 0) & (inside < 255)).to(torch.uint8))


case("horizontal_flip", [], F.horizontal_flip(oblong))
case("vertical_flip", [], F.vertical_flip(oblong))
for mode in ("constant", "edge", "reflect", "symmetric"):
    case("pad", [3, 2, 5, 4, mode], F.pad(oblong, [3, 2, 5, 4], fill=9, padding_mode=mode))
for size in ([4, 5], [5, 4], [13, 17], [1, 1], [20, 5], [8, 22], [15, 19], [14, 18]):
    case("center_crop", size, F.center_crop(oblong, size))
for antialias in (False, True):
    for size in ([26, 34], [7, 9], [13, 17], [5, 40], [2, 1], [12, 16], [3, 4]):
        case("resize", [*size, antialias], F.resize(oblong, size, BILINEAR, antialias=antialias))
    for part in ([2, 3, 9, 11], [0, 0, 13, 17], [5, 7, 2, 9]):
        case("resized_crop", [*part, 8, 10, antialias], F.resized_crop(oblong, *part, [8, 10], BILINEAR, antialias=antialias))
for bilinear in (False, True):
    mode = BILINEAR if bilinear else NEAREST
    for angle in (30, -45, 7.5, 180, 360, 400.5):
        more = {"edge": edge(lambda image: F.rotate(image, angle, mode, fill=[0]))} if bilinear else {}
        case("rotate", [angle, bilinear, 77], F.rotate(oblong, angle, mode, fill=[77]), **more)
    for angle in (90, 270, 180):
        case("rotate", [angle, bilinear, 0], F.rotate(square, angle, mode, fill=[0]), "square")
    for angle, translate, scale, shear in ((33, [2, 1], 1.3, [11, 0]), (-12, [0, 0], 0.7, [-8, 15]), (0, [3, -2], 1, [0, 0]),
                                           (0, [0, 0], 1, [20, 0]), (0, [0, 0], 1, [0, -20]), (200, [-4, 5], 0.4, [0, 0])):
        more = {"edge": edge(lambda image: F.affine(image, angle, translate, scale, shear, mode, fill=[0]))} if bilinear else {}
        case("affine", [angle, *translate, scale, *shear, bilinear, 40],
             F.affine(oblong, angle, translate, scale, shear, mode, fill=[40]), **more)
for factor in (0, 0.3, 0.5, 0.77, 1, 1.4, 2.5):
    for call in ("adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_sharpness"):
        case(call, [factor], getattr(F, call)(oblong, factor))
for shift in (-0.5, -0.21, -0.1, 0, 0.07, 1 / 3, 0.5):
    case("adjust_hue", [shift], F.adjust_hue(oblong, shift))
case("grayscale", [], F.rgb_to_grayscale(oblong, num_output_channels=3))
for threshold in (0, 60, 128, 255):
    case("solarize", [threshold], F.solarize(oblong, threshold))
for bits in (0, 1, 3, 8):
    case("posterize", [bits], F.posterize(oblong, bits))
case("autocontrast", [], F.autocontrast(oblong))
case("autocontrast", [], F.autocontrast(narrow), "narrow")
for name, image in (("oblong", oblong), ("large", large), ("narrow", narrow)):
    case("equalize", [], F.equalize(image), name)
for kernel, sigma in (([3, 3], 0.1), ([3, 3], 0.8), ([5, 5], 2.0), ([1, 7], 1.3), ([9, 3], 1.3)):  # [x, y] there
    case("gaussian_blur", [kernel[1], kernel[0], sigma], F.gaussian_blur(oblong, kernel, [sigma, sigma]))
case("to_float", [], F.to_dtype(oblong, torch.float32, scale=True))
case("normalize", [0.485, 0.456, 0.406, 0.229, 0.224, 0.225],
     F.normalize(F.to_dtype(oblong, torch.float32, scale=True), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

# What can come out of one operation, with all signs.
def outcomes(augment, bins, magnitudes_used):
    found = []
    for name, (magnitudes, is_signed) in augment._AUGMENTATION_SPACE.items():
        values = magnitudes(bins, 13, 17)
        chosen = [0.0] if values is None else [float(values[i]) for i in magnitudes_used]
        for magnitude in [m * sign for m in chosen for sign in ((1, -1) if is_signed else (1,))]:
            result = augment._apply_image_or_video_transform(oblong, name, magnitude, interpolation=NEAREST, fill=augment._fill)
            found.append({"name": name, "magnitude": magnitude, **stored(result)})
    return found


augmented = {"RandAugment 9 of 31": outcomes(v2.RandAugment(num_ops=1), 31, [9]),
             "RandAugment 30 of 31": outcomes(v2.RandAugment(num_ops=1, magnitude=30), 31, [30]),
             "TrivialAugment of 2": outcomes(v2.TrivialAugmentWide(num_magnitude_bins=2), 2, [0, 1])}

# [height, width, shorter side, longest, height after, width after]; longest 0: any.
sizes = []
for height, width in ((480, 640), (640, 480), (13, 17), (100, 1000), (256, 256), (257, 256)):
    for shorter, longest in ((256, None), (256, 300), (11, None), (300, 301)):
        after = v2.functional._geometry._compute_resized_output_size((height, width), [shorter], max_size=longest)
        sizes.append([height, width, shorter, longest or 0, *after])

# The part of a picture in which no part of these ratios and all of the area lies.
middles = []
for height, width in ((30, 1000), (1000, 30), (31, 997), (995, 33)):
    part = v2.RandomResizedCrop(8, scale=(1, 1)).make_params([torch.empty(3, height, width)])
    middles.append([height, width, part["top"], part["left"], part["height"], part["width"]])

by_ffcv = []
if len(sys.argv) > 2:
    # Only its files of operations, without its compiled library; Python runs what numba would compile.
    package = types.ModuleType("ffcv")
    package.__path__ = [sys.argv[2]]
    sys.modules["ffcv"] = package
    for name in ("transforms", "pipeline"):
        part = types.ModuleType(f"ffcv.{name}")
        part.__path__ = [f"{sys.argv[2]}/{name}"]
        sys.modules[f"ffcv.{name}"] = part
    colors = importlib.import_module("ffcv.transforms.color_jitter")
    colors.Compiler.get_iterator = staticmethod(lambda: range)
    for factor in (0.0, 0.3, 0.77, 1.0, 1.4):
        numpy.random.rand = lambda n: numpy.zeros(n)
        numpy.random.uniform = lambda low, high, n: numpy.full(n, factor)
        for call in ("Brightness", "Contrast", "Saturation"):
            rows = oblong.permute(1, 2, 0).contiguous().numpy()[None].copy()
            out = getattr(colors, "Random" + call)(1.0, 1.0).generate_code()(rows)
            by_ffcv.append({"call": "adjust_" + call.lower(), "arguments": [factor], "of": "oblong",
                            **stored(torch.from_numpy(out[0]).permute(2, 0, 1))})

lines = {"oblong": stored(oblong), "square": stored(square), "large": stored(large), "narrow": stored(narrow)}
text = {"pictures": lines, "cases": cases, "augmented": augmented, "sizes": sizes, "middles": middles, "ffcv": by_ffcv}
with open(pathlib.Path(sys.argv[1]) / "torchvision.json.gz", "wb") as file:
    file.write(gzip.compress(json.dumps(text).encode(), 9, mtime=0))

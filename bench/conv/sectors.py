#!/usr/bin/env python3
"""What the ends of conv_tc ask of memory, by arithmetic: no GPU.

    bench/conv/sectors.py

For the convolutions of parts.cu, kernel by kernel: tiles, what tensor copies bring from the second level, and of the
stores, by their addresses in one image's tiles: instructions of a warp, lines of 128 bytes an instruction meets, bytes
in sectors that no instruction fills whole, and the longest piece of a plane that a tile stores."""
import math

SHAPES = (("53x192x17x17-192", 53, 192, 192, 17, 17, 1, (8, 1), (8, 1)),
          ("17x64x128x128-64", 17, 64, 64, 128, 128, 1, (16, 16), (128, 2)),
          ("32x128x112x112-128", 32, 128, 128, 112, 112, 1, (16, 16), (128, 2)),
          ("level2-1", 128, 64, 128, 128, 128, 0, (16, 2), (128, 2)),
          ("level2-54", 64, 64, 64, 256, 256, 1, (16, 16), (256, 1)),
          ("level1-55", 8, 64, 128, 512, 1024, 0, (16, 2), (256, 1)))
BN, L2, TENSOR = 256, 5.5, 2.86  # pixels; MB/us; million multiply-adds a us and multiprocessor


def instructions(staged, oh, ow, tw, th, h0, w0):
    """Of each store of a warp to image 0: channel, first pixel of the plane and pixels of each lane that stores.  From
    registers eight channels at a time; staged one, as it is for each of eight."""
    v = (4 if ow % 4 == 0 else 2 if ow % 2 == 0 else 1) if staged else 2 if ow % 2 == 0 else 1

    def pixel(p):
        h, w = h0 + p // tw % th, w0 + p % tw
        return h * ow + w if p < tw * th and h < oh and w < ow else None

    if staged:  # each for one channel
        for first in range(0, BN, 32 * v):
            yield [(0, pixel(first + lane * v), v) for lane in range(32) if pixel(first + lane * v) is not None]
        return
    for j in range(BN // 8):  # each for eight channels
        for element in range(2 // v):
            at = [pixel(j * 8 + q * 2 + element) for q in range(4)]
            yield [(k, p, v) for k in range(8) for p in at if p is not None]


def count(staged, oh, ow, tw, th):
    """(stores of a warp, lines, bytes, bytes of sectors written in part) of one image's tiles and eight channels."""
    plane, n, lines, stored, partly = oh * ow, 0, 0, 0, 0
    for h0 in range(0, oh, th):
        for w0 in range(0, ow, tw):
            for lanes in instructions(staged, oh, ow, tw, th, h0, w0):
                for channel in range(8) if staged else (0,):
                    sectors = {}
                    for c, p, v in lanes:
                        for i in range(v):
                            at = ((channel + c) * plane + p + i) * 4
                            sectors[at // 32] = sectors.get(at // 32, 0) + 4
                    n += bool(lanes)
                    lines += len({s // 4 for s in sectors})
                    stored += sum(sectors.values())
                    partly += sum(b for b in sectors.values() if b < 32)
    return n, lines, stored, partly


print("| convolution | kernel, tile | tiles | products us | copies MB | us at 5.5 | lines a store "
      "| MB in part-written sectors of | longest piece bytes |\n|---|---|---|---|---|---|---|---|---|")
for name, n, c, k, h, w, pad, planned, wide in SHAPES:
    oh, ow = h + 2 * pad - 2, w + 2 * pad - 2
    for what, staged, (tw, th) in (("planned", 0, planned), ("wide", 0, wide), ("staged", 1, wide)):
        tn = BN // tw // th
        tiles = math.ceil(ow / tw) * math.ceil(oh / th) * math.ceil(n / tn) * math.ceil(k / 128)
        steps, waves = 9 * math.ceil(c / 64), math.ceil(tiles / 132)
        stage = (k / math.ceil(k / 128) + BN) * 128e-6  # MB; of filters that are not there nothing is copied
        stores, lines, stored, partly = count(staged, oh if ow <= 300 else 8, ow, tw, th)  # of 8 rows as of all
        piece = 4 * (ow * min(th, oh) if tw >= ow else min(tw, ow))
        result = n * k * oh * ow * 4e-6
        print(f"| {name} | {what}, {tw}x{th}x{tn} | {tiles:,} | {waves * steps * BN * 128 * 64e-6 / TENSOR:.0f} | "
              f"{tiles * steps * stage:,.0f} | {132 * waves * steps * stage / L2:,.0f} | "
              f"{lines / stores:.1f} | {result * partly / stored:,.0f} of {result:,.0f} | {piece:,} |")

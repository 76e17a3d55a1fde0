// Join filtered colours with the alpha of the image, in tiles of CORRELATE_WIDTH pixels a row.
#pragma once
#include "kernels/headers/common.cuh"

constexpr int CORRELATE_WIDTH = 64;

// Write four pixels with the colours `made` and the image's alpha to shared memory, interleaved.
template <int C>
__device__ __forceinline__ void recoloured4(
    const Item& item, const Tile& tile, int x, int y, const u32* made, u32* out)
{
    constexpr int COLOURS = C == 1 ? 1 : 3;
    const u8* row = source_row(item, tile.y + y);
    u32 bytes[4 * C];
#pragma unroll
    for (int i = 0; i < 4 * C; ++i) {
        if (C == 4 && i % 4 == 3) bytes[i] = row[clamped(tile.x + x + i / 4, item.width) * 4 + 3];
        else bytes[i] = made[i / C * COLOURS + i % C];
    }
    for (int i = 0; i < C; ++i)
        out[(y * CORRELATE_WIDTH + x) / 4 * C + i] =
            packed(bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]);
}

// A tile of samples as they lie in memory, with its surroundings, in shared memory.
#pragma once
#include "kernels/headers/common.cuh"

constexpr int STAGED_WIDTH = 128, STAGED_HEIGHT = 32, MEDIAN_ROWS = 4;

// Stage the samples of a tile with one more row on top and bottom and 16 more bytes on either side.
// For an inner tile with aligned rows all loads are started before the first is waited for.
template <int C>
__device__ __forceinline__ void stage_with_border(const Item& item, const Tile& tile, u32* words)
{
    constexpr int PITCH = STAGED_WIDTH / 4 * C + 8, VECTORS = PITCH / 4;
    constexpr int EACH = ((STAGED_HEIGHT + 2) * VECTORS + THREADS - 1) / THREADS;
    int across = (tile.width * C + 3) / 4, end = (tile.height + 2) * VECTORS;
    int first = tile.x * C - 16, bytes = item.width * C;
    if (bytes % 16 == 0 && first >= 0 && first + 4 * PITCH <= bytes) {
        u32 four[EACH][4];
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            int i = threadIdx.x + k * THREADS;
            if (i < end)
                load16(
                    source_row(item, tile.y + i / VECTORS - 1) + first + i % VECTORS * 16, four[k]);
        }
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            int i = threadIdx.x + k * THREADS;
            if (i < end) store16((u8*)(words + 4 * i), four[k]);
        }
        return;
    }
    for (int i = threadIdx.x; i < end; i += THREADS) {
        int row = i / VECTORS, at = i % VECTORS * 4;
        if (at > across + 4) continue;
        u32 four[4];
        samples16(source_row(item, tile.y + row - 1), bytes, C, first + 4 * at, four);
        store16((u8*)(words + row * PITCH + at), four);
    }
}

// Round the corners: alpha is multiplied by the share of a pixel that lies inside, which is counted
// at 8 × 8 places of the pixel. The result is one line of pixels with alpha.
#include "kernels/headers/common.cuh"

constexpr int CORNER_PLACES = 8, CORNER_TILE_WIDTH = 64, CORNER_TILE_HEIGHT = 16;

// Return how many places of a pixel lie inside: `x` and `y` are its distances from the nearest
// sides in pixels. Places are counted in sixteenths of a pixel, so that all numbers are whole.
__device__ __forceinline__ int places_inside(int x, int y, int radius)
{
    if (x >= radius || y >= radius) return CORNER_PLACES * CORNER_PLACES;
    int inside = 0;
    i64 most = (i64)radius * radius * 4 * CORNER_PLACES * CORNER_PLACES;
    for (int j = 1; j < 2 * CORNER_PLACES; j += 2)
        for (int i = 1; i < 2 * CORNER_PLACES; i += 2) {
            i64 across = 2 * CORNER_PLACES * (radius - x) - i;
            i64 down = 2 * CORNER_PLACES * (radius - y) - j;
            inside += across * across + down * down <= most;
        }
    return inside;
}

extern "C" __global__ void __launch_bounds__(256)
    round_corners(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    int radius = *global<const int>(item.data);
    Tile tile = tile_of(item, block, CORNER_TILE_WIDTH, CORNER_TILE_HEIGHT);
    for (int i = threadIdx.x; i < CORNER_TILE_WIDTH * CORNER_TILE_HEIGHT; i += THREADS) {
        if (i % CORNER_TILE_WIDTH >= tile.width || i / CORNER_TILE_WIDTH >= tile.height) continue;
        int x = tile.x + i % CORNER_TILE_WIDTH, y = tile.y + i / CORNER_TILE_WIDTH;
        const u8* from = source_row(item, y) + x * item.channels;
        u32 red = from[0], green = item.channels > 1 ? from[1] : red;
        u32 blue = item.channels > 1 ? from[2] : red, alpha = item.channels == 4 ? from[3] : 255;
        u32 inside = places_inside(min(x, item.width - 1 - x), min(y, item.height - 1 - y), radius);
        alpha = (2 * alpha * inside + 64) / 128;
        global<u32>(item.dst)[(u32)y * item.width + x] = packed(red, green, blue, alpha);
    }
}
LAUNCHED_BY_TILES(round_corners, CORNER_TILE_WIDTH, CORNER_TILE_HEIGHT);

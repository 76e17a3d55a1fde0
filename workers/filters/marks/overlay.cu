// Overlay: a picture over the image, by the arithmetic of Pillow's AlphaComposite.c; a block for
// every tile, a thread for a pixel at a time. Grey images become RGB.
#include "kernels/headers/common.cuh"

constexpr int OVERLAY_WIDTH = 64, OVERLAY_HEIGHT = 16;

struct Overlay {
    int width, height;      // of the picture, whose RGBA pixels follow this struct
    int column, row, x, y;  // column, row: 0 at the start, 1 in the middle, 2 at the end
    int tiled, reserved;
};

// Return where a picture begins along an axis; `offset` moves it inwards from an end.
__device__ __forceinline__ int begin_of(int image, int picture, int place, int offset)
{
    if (place == 0) return offset;
    return place == 1 ? ((image - picture) >> 1) + offset : image - picture - offset;
}

// Return the place in the picture of a place of the image, or -1 beside it.
__device__ __forceinline__ int within(int at, int picture, int tiled)
{
    if (tiled) return (at % picture + picture) % picture;
    return at < picture ? max(at, -1) : -1;
}

__device__ __forceinline__ void lay_over(const u8* over, u32* under)
{
    u32 alpha = over[3], whole = alpha * 255 + under[3] * (255 - alpha);
    if (alpha == 0) return;
    u32 own = alpha * 255 * 255 * 128 / whole, other = 255 * 128 - own;
    for (int c = 0; c < 3; ++c) {
        u32 mixed = over[c] * own + under[c] * other + (128 << 7);
        under[c] = ((mixed >> 8) + mixed) >> 8 >> 7;
    }
    whole += 128;
    under[3] = ((whole >> 8) + whole) >> 8;
}

extern "C" __global__ void __launch_bounds__(256)
    overlay(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, OVERLAY_WIDTH, OVERLAY_HEIGHT);
    const Overlay& of = *global<const Overlay>(item.data);
    const u8* picture = (const u8*)(&of + 1);
    int left = begin_of(item.width, of.width, of.column, of.x);
    int top = begin_of(item.height, of.height, of.row, of.y);
    int channels = item.channels, written = max(channels, 3);
    for (int i = threadIdx.x; i < tile.width * tile.height; i += THREADS) {
        int x = tile.x + i % tile.width, y = tile.y + i / tile.width;
        const u8* from = source_row(item, y) + x * channels;
        u32 pixel[4] = {from[0], from[channels / 3], from[channels / 3 * 2], 255};
        if (channels == 4) pixel[3] = from[3];
        int column = within(x - left, of.width, of.tiled),
            row = within(y - top, of.height, of.tiled);
        if (column >= 0 && row >= 0) lay_over(picture + 4 * (row * of.width + column), pixel);
        u8* to = global<u8>(item.dst) + ((i64)y * item.width + x) * written;
        for (int c = 0; c < written; ++c) to[c] = (u8)pixel[c];
    }
}
LAUNCHED_BY_TILES(overlay, OVERLAY_WIDTH, OVERLAY_HEIGHT);

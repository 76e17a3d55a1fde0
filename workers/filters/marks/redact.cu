// Redaction: the first pass copies the image. Then passes compute one region after the other in
// place, each from the result of those before it; their grids do not depend on the regions.
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

constexpr int REDACT_BLOCKS = 128, RUN = 64;  // RUN: pixels along which a thread slides its window

struct Region {
    int left, top, width, height;
    int strength;  // side of a square, or radius of the blur
    u32 colour;
    int reserved[2];
};

__device__ __forceinline__ Region region_of(const Item& item, int passes)
{
    return global<const Region>(item.data)[(item.step - 1) / passes];
}

__device__ __forceinline__ u8* pixel_of(const Item& item, const Region& region, int x, int y)
{
    i64 pixel = (i64)(region.top + y) * item.width + region.left + x;
    return global<u8>(item.dst) + pixel * item.channels;
}

// Return sample c of a pixel, a colour times its alpha.
__device__ __forceinline__ u32 weighted(const u8* pixel, int channels, int c)
{
    return channels == 4 && c < 3 ? (u32)pixel[c] * pixel[3] : pixel[c];
}

// Write the mean of `area` pixels with these sums, half up; colours are weighted by their alpha.
__device__ __forceinline__ void write_mean(const u64* sums, u64 area, int channels, u8* pixel)
{
    u64 weight = area;
    u32 alpha = 255;
    if (channels == 4) weight = sums[3], alpha = quotient(2 * weight + area, 2 * area);
    for (int c = 0; c < min(channels, 3); ++c)
        pixel[c] = alpha ? (u8)quotient(2 * sums[c] + weight, 2 * weight) : 0;
    if (channels == 4) pixel[3] = (u8)alpha;
}

extern "C" __global__ void __launch_bounds__(256)
    redact_copy(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    copy_line(item, block);
}
LAUNCHED_BY_LINES(redact_copy, LINE);

extern "C" __global__ void __launch_bounds__(256)
    redact_fill(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Region region = region_of(item, 1);
    for (int y = block; y < region.height; y += REDACT_BLOCKS)
        for (int x = threadIdx.x; x < region.width; x += THREADS)
            for (int c = 0; c < item.channels; ++c)
                pixel_of(item, region, x, y)[c] = byte_of(region.colour, c);
}
LAUNCHED_BY_BLOCKS(redact_fill, REDACT_BLOCKS);

// A warp sums and then fills a square.
extern "C" __global__ void __launch_bounds__(256)
    redact_pixelate(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Region region = region_of(item, 1);
    int size = region.strength, across = (region.width + size - 1) / size;
    int squares = across * ((region.height + size - 1) / size);
    int first = block * (THREADS / 32) + threadIdx.x / 32;
    for (int square = first; square < squares; square += REDACT_BLOCKS * (THREADS / 32)) {
        int left = square % across * size, top = square / across * size;
        int width = min(size, region.width - left), height = min(size, region.height - top);
        u64 sums[4] = {};
        for (int i = threadIdx.x % 32; i < width * height; i += 32) {
            const u8* pixel = pixel_of(item, region, left + i % width, top + i / width);
            for (int c = 0; c < item.channels; ++c) sums[c] += weighted(pixel, item.channels, c);
        }
        for (int mask = 16; mask; mask /= 2)
            for (int c = 0; c < 4; ++c) sums[c] += __shfl_xor_sync(~0u, sums[c], mask);
        for (int i = threadIdx.x % 32; i < width * height; i += 32)
            write_mean(sums, (u64)width * height, item.channels,
                pixel_of(item, region, left + i % width, top + i / width));
    }
}
LAUNCHED_BY_BLOCKS(redact_pixelate, REDACT_BLOCKS);

// Write the sums over 2 · radius + 1 pixels of a row of the region, whose ends replicate, to the
// scratch memory: u32, a region's row after the other.
extern "C" __global__ void __launch_bounds__(256)
    redact_rows(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Region region = region_of(item, 2);
    int radius = region.strength, channels = item.channels;
    int last = region.width - 1, runs = (last + RUN) / RUN, units = runs * region.height;
    for (int unit = block * THREADS + threadIdx.x; unit < units; unit += REDACT_BLOCKS * THREADS) {
        int y = unit / runs, x = unit % runs * RUN, end = min(x + RUN, region.width);
        const u8* row = pixel_of(item, region, 0, y);
        u32* to = global<u32>(item.scratch) + ((i64)y * region.width + x) * channels;
        u32 sums[4] = {};
        for (int i = x - radius; i <= x + radius; ++i)
            for (int c = 0; c < channels; ++c)
                sums[c] += weighted(row + clamped(i, last + 1) * channels, channels, c);
        for (; x < end; ++x) {
            const u8* enters = row + clamped(x + radius + 1, last + 1) * channels;
            const u8* leaves = row + clamped(x - radius, last + 1) * channels;
            for (int c = 0; c < channels; ++c) {
                *to++ = sums[c];
                sums[c] += weighted(enters, channels, c) - weighted(leaves, channels, c);
            }
        }
    }
}
LAUNCHED_BY_BLOCKS(redact_rows, REDACT_BLOCKS);

// Write the means over squares: sums of the sums of rows, likewise.
extern "C" __global__ void __launch_bounds__(256)
    redact_columns(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Region region = region_of(item, 2);
    int radius = region.strength, side = 2 * radius + 1, channels = item.channels;
    int runs = (region.height + RUN - 1) / RUN, units = runs * region.width;
    i64 stride = (i64)region.width * channels;
    for (int unit = block * THREADS + threadIdx.x; unit < units; unit += REDACT_BLOCKS * THREADS) {
        int x = unit % region.width, y = unit / region.width * RUN;
        int end = min(y + RUN, region.height);
        const u32* column = global<const u32>(item.scratch) + x * channels;
        u64 sums[4] = {};
        for (int i = y - radius; i <= y + radius; ++i)
            for (int c = 0; c < channels; ++c)
                sums[c] += column[clamped(i, region.height) * stride + c];
        for (; y < end; ++y) {
            write_mean(sums, (u64)side * side, channels, pixel_of(item, region, x, y));
            const u32* enters = column + clamped(y + radius + 1, region.height) * stride;
            const u32* leaves = column + clamped(y - radius, region.height) * stride;
            for (int c = 0; c < channels; ++c) sums[c] += (u64)enters[c] - leaves[c];
        }
    }
}
LAUNCHED_BY_BLOCKS(redact_columns, REDACT_BLOCKS);

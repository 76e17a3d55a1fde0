// Filters of single pixels that mix channels: colour matrices, colorize, hue, threshold, composite.
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

// The red, green and blue of the result as weighted sums of those of the image, plus an offset, in
// Q16.
struct Matrix {
    int rows[3][4];  // the offset contains half a level, which rounds half up

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        for (int c = 0; c < 3; ++c) {
            int sum = rows[c][3];
            for (int k = 0; k < 3; ++k) sum += rows[c][k] * (int)colour[k];
            made[c] = min(max(sum >> 16, 0), 255);
        }
    }
};

// Map a grey image to RGB; a thread makes four pixels a turn.
template <class Map>
__device__ __forceinline__ void map_grey(const Item& item, int block, const Map& map)
{
    u32 total = samples_of(item), end = min(total, (block + 1) * LINE);
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    for (u32 at = block * LINE + 4 * threadIdx.x; at < end; at += 4 * THREADS) {
        u32 word = *(const u32*)(src + at), bytes[12];
        for (int k = 0; k < 4; ++k) {
            u32 level = byte_of(word, k), colour[3] = {level, level, level};
            map(colour, bytes + 3 * k);
        }
        if (at + 4 <= total) {
            u32* to = (u32*)(dst + 3 * at);
            for (int i = 0; i < 12; i += 4)
                to[i / 4] = packed(bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]);
        } else {
#pragma unroll
            for (int i = 0; i < 12; ++i)
                if (i < 3 * (int)(total - at)) dst[3 * at + i] = (u8)bytes[i];
        }
    }
}

template <class Map>
__device__ __forceinline__ void map_to_colour(const Item& item, int block, const Map& map)
{
    if (item.channels == 1) map_grey(item, block, map);
    else if (item.channels == 3) map_pixels<3>(item, block, map);
    else map_pixels<4>(item, block, map);
}

extern "C" __global__ void __launch_bounds__(256)
    color_matrix(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    map_to_colour(item, block, *global<const Matrix>(item.data));
}
LAUNCHED_BY_LINES(color_matrix, LINE);

// Colorize: the colour that belongs to the luma, blended with the pixel's own colour.
struct Colorize {
    const u32* colours;
    float intensity;

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        u32 toned = colours[luma(colour[0], colour[1], colour[2])];
        for (int c = 0; c < 3; ++c)
            made[c] = blend(as_float(colour[c]), as_float(byte_of(toned, c)), intensity);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    colorize(const Item* items, const u32* starts, int n)
{
    __shared__ u32 colours[256];
    int block;
    Item item = find_item(items, starts, n, block);
    const u32* from = global<const u32>(item.data);
    colours[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    map_to_colour(item, block, Colorize{colours, __uint_as_float(from[256])});
}
LAUNCHED_BY_LINES(colorize, LINE);

// Rotation of the hue; value and chroma stay. Hues are in units of 1 / (65536 · chroma) of a sixth
// of the circle. They are at most 13 sixths, so a comparison instead of a division brings them into
// the circle.
struct HueRotation {
    int turn;

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        int red = colour[0], green = colour[1], blue = colour[2];
        int value = max(max(red, green), blue), chroma = value - min(min(red, green), blue);
        int hue = 4 * chroma + red - green;
        if (green == value) hue = 2 * chroma + blue - red;
        if (red == value) hue = green - blue;
        hue = hue * 65536 + chroma * turn;
        chroma *= 65536;
        u32 circle = 6 * chroma, start = min((u32)hue, hue + circle);
        start = min(start, start - circle);
#pragma unroll
        for (int c = 0; c < 3; ++c) {
            u32 turned = start + (5 - 2 * c) * chroma;
            int k = min(turned, turned - circle);
            k = max(min(min(k, 4 * chroma - k), chroma), 0);
            made[c] = (value * 65536 + 32768 - k) >> 16;
        }
    }
};

extern "C" __global__ void __launch_bounds__(256) hue(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    HueRotation turned = *global<const HueRotation>(item.data);
    if (item.channels == 1) copy_line(item, block);
    else if (item.channels == 3) map_pixels<3>(item, block, turned);
    else map_pixels<4>(item, block, turned);
}
LAUNCHED_BY_LINES(hue, LINE);

// Composite a pixel over an opaque colour: (c · alpha + behind · (255 - alpha)) / 255, rounded to
// the nearest.
__device__ __forceinline__ void composite_over(u32 pixel, u32 behind, u32* made)
{
    u32 alpha = pixel >> 24;
    for (int c = 0; c < 3; ++c) {
        u32 sum = byte_of(pixel, c) * alpha + byte_of(behind, c) * (255 - alpha) + 128;
        made[c] = (sum + (sum >> 8)) >> 8;
    }
}

// Composite RGBA to RGB over one colour; a thread makes four pixels a turn.
extern "C" __global__ void __launch_bounds__(256)
    composite(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    if (item.channels < 4) {
        copy_line(item, block);
        return;
    }
    u32 behind = *global<const u32>(item.data), total = samples_of(item);
    u32 end = min(total, (block + 1) * LINE);
    const u32* src = global<const u32>(item.src);
    u8* dst = global<u8>(item.dst);
    for (u32 at = block * LINE + 16 * threadIdx.x; at < end; at += 16 * THREADS) {
        u32 bytes[12], n = min(4u, (total - at) / 4);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (k < n) composite_over(src[at / 4 + k], behind, bytes + 3 * k);
        u8* to = dst + at / 4 * 3;
        if (n == 4) {
            for (int i = 0; i < 12; i += 4)
                *(u32*)(to + i) = packed(bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]);
        } else {
#pragma unroll
            for (int i = 0; i < 12; ++i)
                if (i < 3 * n) to[i] = (u8)bytes[i];
        }
    }
}
LAUNCHED_BY_LINES(composite, LINE);

// Threshold: pixels with a luma above `value` become `light`, the others black.
struct Threshold {
    u32 value, light;
};

template <int C> struct ThresholdMap {
    Threshold tones;

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        u32 grey = C == 1 ? colour[0] : luma(colour[0], colour[1], colour[2]);
        made[0] = made[1] = made[2] = grey > tones.value ? tones.light : 0;
    }
};

extern "C" __global__ void __launch_bounds__(256)
    apply_threshold(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Threshold tones = *global<const Threshold>(item.data);
    if (item.channels == 1) map_pixels<1>(item, block, ThresholdMap<1>{tones});
    else if (item.channels == 3) map_pixels<3>(item, block, ThresholdMap<3>{tones});
    else map_pixels<4>(item, block, ThresholdMap<4>{tones});
}
LAUNCHED_BY_LINES(apply_threshold, LINE);

// Pixels of an image on the device, as libjpeg-turbo and Pillow make them, one at a time.
//
// A JPEG lies as the planes of its decoder. Chroma of 4:2:2 and 4:2:0 is upsampled by a triangle
// filter in integers ("fancy upsampling", libjpeg-turbo's jdsample.c): an output sample x lies
// between the sample `near` = x / 2 and the one on its other side, `far`,
//
//     chroma:        c0      c1      c2        4:2:2: (3 · near + far + 1 + x % 2) / 4
//     output:      0   1   2   3   4   5       4:2:0: the same along both axes, weights 9, 3, 3, 1,
//     near of 2 is c1, far is c0                      (sum + 8 - x % 2) / 16
//
// Samples beyond an edge replicate; planes of at most two columns are not filtered. YCbCr becomes
// RGB in 16-bit fixed point (jdcolor.c). `upright_rgb` applies EXIF's orientation by turning
// coordinates. An image of samples lies interleaved; its alpha is composited over white as by
// Pillow's alpha_composite.
#pragma once
#include "kernels/headers/common.cuh"

// GREY is also the kind of a grey JPEG.
enum Kind { GREY = 1, RGB = 3, RGBA = 4, S444 = 5, S422 = 6, S420 = 7 };

// How RGB becomes sRGB (models/codec/matrix_shaper.py), in fixed point of 14 bits.
struct Shaper {
    short linear[3][256];
    int matrix[3][3];
    u8 levels[(1 << 14) + 1];
};

struct Source {
    u64 plane[3];       // Y, Cb, Cr; an image of samples uses the first only
    u64 shaper;         // a Shaper, or 0 where the planes are in sRGB
    int pitch[3];       // bytes from row to row
    int width, height;  // as stored, before the orientation
    int kind;
    int orientation;  // of EXIF, 1 to 8
    int reserved;
};

struct Colour {
    int r, g, b;
};

__device__ inline int clamped(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

// Return the number of the image that this block works on, for blocks of any size.
__device__ inline int item_of(const u32* starts, int n)
{
    int low = 0, high = n;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (starts[middle] <= blockIdx.x) low = middle;
        else high = middle;
    }
    return low;
}

__device__ inline int half_wide(const u8* row, int columns, int x)
{
    int near = x >> 1;
    if (columns <= 2) return row[near];
    int far = clamped(x & 1 ? near + 1 : near - 1, 0, columns - 1);
    return (3 * row[near] + row[far] + 1 + (x & 1)) >> 2;
}

__device__ inline int half_wide_and_high(
    const u8* plane, int pitch, int columns, int rows, int x, int y)
{
    int near = x >> 1, row = y >> 1;
    const u8* here = plane + (i64)row * pitch;
    if (columns <= 2) return here[near];
    const u8* there = plane + (i64)clamped(y & 1 ? row + 1 : row - 1, 0, rows - 1) * pitch;
    int far = clamped(x & 1 ? near + 1 : near - 1, 0, columns - 1);
    int sum = 3 * (3 * here[near] + there[near]) + 3 * here[far] + there[far];
    return (sum + 8 - (x & 1)) >> 4;
}

__device__ inline int chroma(const Source& s, int index, int x, int y)
{
    const u8* plane = (const u8*)s.plane[index];
    int pitch = s.pitch[index], columns = (s.width + 1) >> 1;
    if (s.kind == S444) return plane[(i64)y * pitch + x];
    if (s.kind == S422) return half_wide(plane + (i64)y * pitch, columns, x);
    return half_wide_and_high(plane, pitch, columns, (s.height + 1) >> 1, x, y);
}

__device__ inline Colour from_ycc(int y, int cb, int cr)
{
    cb -= 128;
    cr -= 128;
    Colour c;
    c.r = clamped(y + ((91881 * cr + 32768) >> 16), 0, 255);
    c.g = clamped(y + ((-22554 * cb - 46802 * cr + 32768) >> 16), 0, 255);
    c.b = clamped(y + ((116130 * cb + 32768) >> 16), 0, 255);
    return c;
}

__device__ inline int level_by(const Shaper& s, const int* row, int r, int g, int b)
{
    int sum = row[0] * r + row[1] * g + row[2] * b + (1 << 13);
    return s.levels[clamped(sum >> 14, 0, 1 << 14)];
}

__device__ inline Colour in_srgb(const Shaper& s, Colour c)
{
    int r = s.linear[0][c.r], g = s.linear[1][c.g], b = s.linear[2][c.b];
    c.r = level_by(s, s.matrix[0], r, g, b);
    c.g = level_by(s, s.matrix[1], r, g, b);
    c.b = level_by(s, s.matrix[2], r, g, b);
    return c;
}

// Composite a sample over opaque white, as Pillow's AlphaComposite.c does.
__device__ inline int over_white(int sample, int alpha)
{
    int blend = (255 - alpha) * 255;
    int out_alpha = alpha * 255 + blend;
    int coef1 = alpha * 255 * 255 * (1 << 7) / out_alpha;
    int coef2 = 255 * (1 << 7) - coef1;
    int mixed = sample * coef1 + 255 * coef2 + (0x80 << 7);
    return ((mixed >> 8) + mixed) >> 8 >> 7;
}

__device__ inline Colour stored_rgb(const Source& s, int x, int y)
{
    const u8* row = (const u8*)s.plane[0] + (i64)y * s.pitch[0];
    Colour c;
    if (s.kind >= S444) {
        c = from_ycc(row[x], chroma(s, 1, x, y), chroma(s, 2, x, y));
        return s.shaper ? in_srgb(*(const Shaper*)s.shaper, c) : c;
    }
    if (s.kind == GREY) {
        c.r = c.g = c.b = row[x];
        return c;
    }
    const u8* pixel = row + x * s.kind;
    c.r = pixel[0];
    c.g = pixel[1];
    c.b = pixel[2];
    if (s.kind == RGBA) {
        int alpha = pixel[3];
        c.r = over_white(c.r, alpha);
        c.g = over_white(c.g, alpha);
        c.b = over_white(c.b, alpha);
    }
    return c;
}

__device__ inline Colour upright_rgb(const Source& s, int x, int y)
{
    if (s.orientation >= 5) {
        int swapped = x;
        x = y;
        y = swapped;
    }
    int o = s.orientation;
    if (o == 2 || o == 3 || o == 7 || o == 8) x = s.width - 1 - x;
    if (o == 3 || o == 4 || o == 6 || o == 7) y = s.height - 1 - y;
    return stored_rgb(s, x, y);
}

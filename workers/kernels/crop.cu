// The centre crop that a network sees: Pillow's resize, the crop and the normalisation, in one
// launch over images of any size and kind. Bit-equal to Pillow's Resample.c: a bilinear or bicubic
// filter with weights of 22 bits, one axis after the other, rounded to bytes in between.
//
//     source                         A block makes `tile` rows of one crop. First step: the rows of
//     +----------------------+       the source that these need, resampled across to `side` pixels,
//     |  rows that the tile  |       lie in `between` (or, with columns_first, the columns that the
//     |  needs, at most ROOM |       crop needs, resampled down to the rows of the tile). Second
//     +----------------------+       step: along the other axis, then each level through `table`.
//
// Threads take samples in order, one after another; no thread owns a row. A line of weights per
// axis is int[2 + taps][side]: first source pixel, number of pixels, then the weights
// (`crop_weights`).
#include "kernels/headers/common.cuh"
#include "kernels/headers/resample.cuh"
#include "kernels/headers/source.cuh"

struct Crop {
    Source source;
    int resized_width, resized_height;
    int left, top;      // place of the crop in the resized image
    u64 weights;        // int[2][2 + taps][side]: across, then down
    int taps;           // room for each output's weights
    int tile;           // output rows of a block
    int columns_first;  // which axis is the first
    int method;         // BILINEAR or BICUBIC
};

const int PRECISION_BITS = 22, HALF = 1 << (PRECISION_BITS - 1);
const int ROOM = 72 * 224;  // pixels between the two steps: the most that fits 48 KiB of memory

__device__ inline u8 level_of(int sum) { return clamped(sum >> PRECISION_BITS, 0, 255); }

__device__ inline int* line_of(const Crop& crop, int side, int axis)
{
    return (int*)crop.weights + axis * (2 + crop.taps) * side;
}

// Compute the weights of one axis of one image a block, in doubles in Pillow's order of operations.
extern "C" __global__ void crop_weights(const Crop* crops, int side)
{
    const Crop crop = crops[blockIdx.x >> 1];
    int axis = blockIdx.x & 1;
    bool turned = crop.source.orientation >= 5;
    int n_in = (axis == 0) != turned ? crop.source.width : crop.source.height;
    int n_out = axis == 0 ? crop.resized_width : crop.resized_height;
    int start = axis == 0 ? crop.left : crop.top;
    double scale = (double)n_in / n_out;
    double widened = scale < 1.0 ? 1.0 : scale;
    double support = crop.method * widened, inverse = 1.0 / widened;
    int* line = line_of(crop, side, axis);
    for (int i = threadIdx.x; i < side; i += blockDim.x) {
        double centre = (start + i + 0.5) * scale;
        int low = (int)(centre - support + 0.5), high = (int)(centre + support + 0.5);
        if (low < 0) low = 0;
        if (high > n_in) high = n_in;
        double total = 0.0;
        for (int x = 0; x < high - low; x++)
            total += resample_filter(crop.method, (x + low - centre + 0.5) * inverse);
        line[i] = low;
        line[side + i] = high - low;
        for (int x = 0; x < high - low; x++) {
            double w = resample_filter(crop.method, (x + low - centre + 0.5) * inverse);
            w = w / total * (1 << PRECISION_BITS);
            line[(2 + x) * side + i] = (int)(w + (w < 0.0 ? -0.5 : 0.5));
        }
    }
}

// Resample one pixel: output `i` of a line of weights, across row `at` of the source or down its
// column `at`.
template <bool DOWN>
__device__ inline void resample(
    const Source& source, const int* line, int side, int i, int at, u8* made)
{
    int low = line[i], count = line[side + i];
    int r = HALF, g = HALF, b = HALF;
    for (int tap = 0; tap < count; tap++) {
        int weight = line[(2 + tap) * side + i];
        Colour c = DOWN ? upright_rgb(source, at, low + tap) : upright_rgb(source, low + tap, at);
        r += c.r * weight;
        g += c.g * weight;
        b += c.b * weight;
    }
    made[0] = level_of(r);
    made[1] = level_of(g);
    made[2] = level_of(b);
}

// Make the rows of one block. `table` holds what each level of each channel becomes; `out` is (n,
// side, side, 3) of T.
template <bool COLUMNS_FIRST, typename T>
__device__ __forceinline__ void crop_rows(
    const Crop& crop, int image, int tile, int side, const T* table, T* out, u8* between)
{
    const int* across = line_of(crop, side, 0);
    const int* down = line_of(crop, side, 1);
    int first = tile * crop.tile;
    int last = first + crop.tile < side ? first + crop.tile : side;
    int start = COLUMNS_FIRST ? across[0] : down[first];
    int end = COLUMNS_FIRST ? across[side - 1] + across[2 * side - 1]
                            : down[last - 1] + down[side + last - 1];
    int width = COLUMNS_FIRST ? end - start : side;
    int height = COLUMNS_FIRST ? last - first : end - start;
    for (int i = threadIdx.x; i < height * width; i += blockDim.x) {
        int y = i / width, x = i - y * width;
        if (COLUMNS_FIRST)
            resample<true>(crop.source, down, side, first + y, start + x, between + 3 * i);
        else resample<false>(crop.source, across, side, x, start + y, between + 3 * i);
    }
    __syncthreads();
    const int step = COLUMNS_FIRST ? 3 : 3 * side;
    for (int i = threadIdx.x; i < (last - first) * side * 3; i += blockDim.x) {
        int y = first + i / (side * 3), sample = i % (side * 3);
        const int* line = COLUMNS_FIRST ? across + sample / 3 : down + y;
        int low = line[0] - start, count = line[side];
        const u8* from = between + (COLUMNS_FIRST ? 3 * (y - first) * width + sample % 3 : sample);
        int sum = HALF;
        for (int tap = 0; tap < count; tap++)
            sum += from[(low + tap) * step] * line[(2 + tap) * side];
        out[((i64)image * side + y) * side * 3 + sample] = table[level_of(sum) * 3 + sample % 3];
    }
}

template <typename T>
__device__ void crop_normalise(
    const Crop* crops, const u32* starts, int n, int side, const T* table, T* out)
{
    __shared__ u8 between[ROOM * 3];
    int image = item_of(starts, n), tile = blockIdx.x - starts[image];
    const Crop& crop = crops[image];
    if (crop.columns_first) crop_rows<true>(crop, image, tile, side, table, out, between);
    else crop_rows<false>(crop, image, tile, side, table, out, between);
}

// The table and the result have 16 bits a sample; the kernel does not interpret them.
extern "C" __global__ void crop_normalise_16(
    const Crop* crops, const u32* starts, int n, int side, const u16* table, u16* out)
{
    crop_normalise<u16>(crops, starts, n, side, table, out);
}

extern "C" __global__ void crop_normalise_32(
    const Crop* crops, const u32* starts, int n, int side, const u32* table, u32* out)
{
    crop_normalise<u32>(crops, starts, n, side, table, out);
}

struct Unpack {
    Source source;
    u64 target;  // (height, width, channels) of the upright image, 1 or 3 channels
};

constexpr int UNPACK_LINE = 1024;  // pixels a block

// Write the pixels of decoded JPEGs, upright and interleaved, for the filters. A block takes
// UNPACK_LINE pixels.
extern "C" __global__ void unpack(const Unpack* items, const u32* starts, int n)
{
    int image = item_of(starts, n);
    const Unpack item = items[image];
    bool turned = item.source.orientation >= 5;
    int width = turned ? item.source.height : item.source.width;
    int pixels = item.source.width * item.source.height;
    int first = (blockIdx.x - starts[image]) * UNPACK_LINE;
    int last = first + UNPACK_LINE < pixels ? first + UNPACK_LINE : pixels;
    u8* target = (u8*)item.target;
    for (int i = first + threadIdx.x; i < last; i += blockDim.x) {
        Colour c = upright_rgb(item.source, i % width, i / width);
        if (item.source.kind == GREY) {
            target[i] = c.r;
            continue;
        }
        target[3 * (i64)i] = c.r;
        target[3 * (i64)i + 1] = c.g;
        target[3 * (i64)i + 2] = c.b;
    }
}
LAUNCHED_BY_LINES(unpack, UNPACK_LINE);

// A window onto the image, inside it or beyond: crop and pad. The result is one line of samples,
// LINE of them a block.

struct Window {
    int left, top, width, height;  // in the image; the size is the result's
    int border;                    // one of Border
    u32 background;                // of a constant border
};

enum Border { REPLICATE, REFLECT, MIRROR, WRAP, CONSTANT };

// Where in 0 … size - 1 a place beyond the ends is; -1 for the background.
__device__ __forceinline__ int bordered(int at, int size, int border)
{
    if (at >= 0 && at < size) return at;
    if (border == REPLICATE) return clamped(at, size);
    if (border == CONSTANT) return -1;
    if (border == MIRROR) return mirrored(at, size);
    int period = border == REFLECT ? 2 * size : size, place = at % period;
    if (place < 0) place += period;
    return place < size ? place : period - 1 - place;
}

// The colour of a pixel, red in the lowest byte; black beyond a constant border.
template <int C>
__device__ __forceinline__ u32 bordered_colour(const Item& item, int x, int y, int border)
{
    int row = bordered(y, item.height, border), column = bordered(x, item.width, border);
    if (row < 0 || column < 0) return 0;
    const u8* at = source_row(item, row) + column * C;
    if constexpr (C == 1) return at[0];
    else return at[0] | at[1] << 8 | at[2] << 16;
}

// Samples at … end - 1 of the result, one by one: what begins or ends beyond a row of the image.
static __device__ __noinline__ void look_slowly(const Item& item, const Window& window, u32 at, u32 end)
{
    int channels = item.channels, stride = window.width * channels;
    int y = at / stride, x = at % stride / channels, channel = at % channels;
    u8* dst = global<u8>(item.dst);
    for (; y < window.height && at < end; ++y, x = 0) {
        int row = bordered(y + window.top, item.height, window.border);
        for (; x < window.width && at < end; ++x, channel = 0) {
            int column = bordered(x + window.left, item.width, window.border);
            const u8* pixel = source_row(item, row) + column * channels;
            bool inside = row >= 0 && column >= 0;
            for (; channel < channels && at < end; ++channel, ++at)
                dst[at] = inside ? pixel[channel] : byte_of(window.background, channel);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
look(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    const Window window = *global<const Window>(item.data);
    u32 stride = window.width * item.channels, total = stride * window.height;
    u32 end = min(total, (block + 1) * LINE);
    int bytes = item.width * item.channels;
    for (u32 at = block * LINE + 16 * threadIdx.x; at < end; at += 16 * THREADS) {
        int y = at / stride, from = (int)(at - y * stride) + window.left * item.channels;
        int row = bordered(y + window.top, item.height, window.border);
        if (row >= 0 && from >= 0 && from + 16 <= bytes && at - y * stride + 16 <= stride) {
            u32 words[4];
            samples16(source_row(item, row), bytes, item.channels, from, words);
            store16(global<u8>(item.dst) + at, words);
        } else {
            look_slowly(item, window, at, min(at + 16, total));
        }
    }
}

// Crop and pad: the result is a window onto the image that may extend beyond it. The result is one
// line of samples, LINE of them a block.
#include "kernels/headers/borders.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

struct Window {
    int left, top, width, height;  // left, top: in the image; width, height: of the result
    int border;                    // one of Border
    u32 background;                // of a constant border
};

// Write samples at … end - 1 of the result one by one, where they begin or end beyond a row of the
// image.
static __device__ __noinline__ void copy_window_ends(
    const Item& item, const Window& window, u32 at, u32 end)
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
    copy_window(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
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
            copy_window_ends(item, window, at, min(at + 16, total));
        }
    }
}
LAUNCHED_BY_LINES(copy_window, LINE);

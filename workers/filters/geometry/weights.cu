// The weights of Pillow's resampling (Resample.c), computed in doubles in Pillow's order of
// operations.
#include "filters/geometry/resize.cuh"
#include "kernels/headers/common.cuh"

// Find the nearest pixels. One thread adds up their places, because Pillow adds them up, too, and
// the roundings are those of this order.
__device__ __forceinline__ void nearest_line(
    int* line, double start, double scale, int size, int last)
{
    double place = start + scale * 0.5;
    for (int i = 0; i < size; ++i, place += scale) {
        line[i] = clamped((int)place, last);
        line[size + i] = 1;
        line[2 * size + i] = 1 << RESIZE_BITS;
    }
}

__device__ __forceinline__ void resize_output(
    int* line, const Resize& of, int axis, int length, int i)
{
    double scale = of.scale[axis], widened = max(scale, 1.0), inverse = __ddiv_rn(1.0, widened);
    double support = of.method * widened, centre = of.start[axis] + (i + 0.5) * scale;
    int low = max((int)(centre - support + 0.5), 0),
        high = min((int)(centre + support + 0.5), length);
    int size = of.size[axis];
    double total = 0.0;
    for (int x = 0; x < high - low; ++x)
        total += resample_filter(of.method, (x + low - centre + 0.5) * inverse);
    for (int x = 0; x < high - low; ++x) {
        double weight = resample_filter(of.method, (x + low - centre + 0.5) * inverse);
        if (total != 0.0) weight = __ddiv_rn(weight, total);
        line[(2 + x) * size + i] = (int)(weight * (1 << RESIZE_BITS) + (weight < 0 ? -0.5 : 0.5));
    }
    line[i] = low, line[size + i] = high - low;
}

// Compute the weights of an image; even blocks take the axis across, odd ones the axis down.
extern "C" __global__ void __launch_bounds__(256)
    resize_weights(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    const Resize& of = *global<const Resize>(item.data);
    int axis = block % 2, first = block / 2 * THREADS + threadIdx.x;
    int length = axis ? item.height : item.width;
    int* line = resize_line(item, of, axis);
    if (of.method == NEAREST) {
        if (first == 0) nearest_line(line, of.start[axis], of.scale[axis], of.size[axis], length);
        return;
    }
    for (int i = first; i < of.size[axis]; i += RESIZE_BLOCKS / 2 * THREADS)
        resize_output(line, of, axis, length, i);
}
LAUNCHED_BY_BLOCKS(resize_weights, RESIZE_BLOCKS);

// The filters of Pillow's resampling (Resample.c); a method's number is the radius of its filter. The
// sine is the device's; its last bits make no difference in weights of 22 bits.
#pragma once

enum Method { NEAREST, BILINEAR, BICUBIC, LANCZOS };

__device__ __forceinline__ double sinc(double x)
{
    x *= 3.14159265358979323846;
    return x == 0.0 ? 1.0 : __ddiv_rn(sin(x), x);
}

static __device__ __noinline__ double resample_filter(int method, double x)
{
    if (method == LANCZOS) return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(__ddiv_rn(x, 3.0)) : 0.0;
    x = x < 0.0 ? -x : x;
    if (method == BILINEAR) return x < 1.0 ? 1.0 - x : 0.0;
    if (x < 1.0) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0.0;
}

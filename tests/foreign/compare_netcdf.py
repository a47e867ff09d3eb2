#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Means, minima, maxima and counts of missing values of `braid data stats` beside those of xarray and netCDF4, on files of any origin
and on files that netCDF4 and h5netcdf write. Skipped, visibly, without these packages.

  compare_netcdf.py BRAID [FILE.nc ...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import h5netcdf.legacyapi
    import netCDF4
    import numpy as np
    import xarray
except ImportError as missing:
    print(f"SKIPPED: {missing}; pip install netCDF4 h5netcdf xarray")
    sys.exit(0)

TOLERANCE = 1e-6
braid = sys.argv[1]


def masked_by_netcdf4(variable):
    """valid_range and default fill values, which xarray does not know, are netCDF4's."""
    variable.set_auto_maskandscale(True)
    values = np.ma.masked_invalid(np.ma.asarray(variable[...]).astype("f8"))
    return values.filled(np.nan)


def by_xarray(file, name):
    with xarray.open_dataset(file, decode_times=False, mask_and_scale=True) as data:
        return data[name].values.astype("f8")


def only_netcdf4(variable):
    known = set(variable.ncattrs())
    if variable.dtype.itemsize == 1:
        return False  # every byte is a number, but netCDF4 takes the default fill value for missing
    return bool(known & {"valid_range", "valid_min", "valid_max"}) or "_FillValue" not in known


def expected(file, name):
    with netCDF4.Dataset(file) as data:
        variable = data.variables[name]
        if only_netcdf4(variable):
            return masked_by_netcdf4(variable)
    return by_xarray(file, name)


def braid_stats(file, name):
    done = subprocess.run([braid, "data", "stats", str(file), "--variables", name, "--json"], capture_output=True, text=True)
    return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr)


def near(a, b, size):
    return abs(a - b) <= TOLERANCE * max(abs(b), size, 1e-300)


def compare(file, name):
    values = expected(file, name)
    stats, problem = braid_stats(file, name)
    if stats is None:
        return "all missing" if "has no value" in problem and np.isnan(values).all() else f"REFUSED {problem.splitlines()[0]}"
    channels = stats["channels"]
    finite = values[np.isfinite(values)]
    size = np.abs(finite).max()
    counts = [values.size / len(channels) - c["missing"] for c in channels]
    mean = sum(c["mean"] * n for c, n in zip(channels, counts)) / sum(counts)
    least, most = min(c["least"] for c in channels), max(c["most"] for c in channels)
    missing = sum(c["missing"] for c in channels)
    good = (near(mean, finite.mean(), size) and near(least, finite.min(), 0) and near(most, finite.max(), 0)
            and missing == values.size - finite.size)
    told = f"mean {mean:.9g} least {least:.7g} most {most:.7g} missing {missing}"
    return f"same: {told}" if good else (
        f"DIFFERS: {told}; xarray: {finite.mean():.9g} {finite.min():.7g} {finite.max():.7g} {values.size - finite.size}")


def fields_in(file):
    """Variables with two or more dimensions of numbers, other than bounds and coordinates."""
    with netCDF4.Dataset(file) as data:
        skip = set(data.dimensions) | {v.bounds for v in data.variables.values() if hasattr(v, "bounds")}
        skip |= {word for v in data.variables.values() for word in getattr(v, "coordinates", "").split()}
        return [n for n, v in data.variables.items() if v.ndim >= 3 and n not in skip and v.dtype != str and v.dtype.kind in "iuf"]


def write(path, kind, **attributes):
    """One variable v(time, lat, lon) as `kind` says."""
    order, zipped, chunks = kind.get("endian", "native"), kind.get("zlib", False), kind.get("chunks")
    with netCDF4.Dataset(path, "w") as data:
        data.createDimension("time", None)
        data.createDimension("lat", 7)
        data.createDimension("lon", 11)
        time = data.createVariable("time", "f8", ("time",))
        time.units = "hours since 1900-01-01"
        time[:] = np.arange(5) * 6.0
        for name, units, values in (("lat", "degrees_north", np.linspace(60, -60, 7)), ("lon", "degrees_east", np.arange(11) * 30.0)):
            axis = data.createVariable(name, "f4", (name,))
            axis.units = units
            axis[:] = values
        fill = attributes.pop("_FillValue", None)
        v = data.createVariable("v", kind["type"], kind.get("dims", ("time", "lat", "lon")), fill_value=fill, endian=order, zlib=zipped,
                                chunksizes=chunks, contiguous=False if chunks else None)
        v.setncatts(attributes)
        v.set_auto_maskandscale(False)
        sizes = [len(data.dimensions[d]) or 5 for d in v.dimensions]
        values = np.random.default_rng(1).integers(kind.get("low", 1), kind.get("high", 30000), sizes).astype(kind["type"])
        for i, special in enumerate(kind.get("special", [])):
            values.flat[i::37] = special
        v[:] = values


def write_all(folder):
    i2, u1, i1 = np.int16, np.uint8, np.int8
    kinds = {
        "packed_i2": ({"type": "i2", "special": [-32767]}, {"scale_factor": 0.01, "add_offset": 250.0, "_FillValue": i2(-32767)}),
        "packed_f4": ({"type": "i2", "special": [-1]}, {"scale_factor": np.float32(0.01), "_FillValue": i2(-1)}),
        "unsigned": ({"type": "i1", "low": -128, "high": 128, "special": [-1]},
                     {"_Unsigned": "true", "scale_factor": 0.5, "_FillValue": i1(-1)}),
        "u1": ({"type": "u1", "high": 255, "special": [255]}, {"_FillValue": u1(255)}),
        "missing": ({"type": "f4", "special": [-9999, 1e20]}, {"missing_value": np.float32([-9999, 1e20]), "_FillValue": np.float32(-1)}),
        "missing_i2": ({"type": "i2", "special": [-999, -998]}, {"missing_value": i2([-999, -998]), "scale_factor": 0.1}),
        "range": ({"type": "i2", "special": [-5, 31000]}, {"valid_range": i2([0, 30000]), "scale_factor": 0.1}),
        "min_max": ({"type": "f4", "special": [-5, 31000]}, {"valid_min": np.float32(0), "valid_max": np.float32(30000)}),
        "big": ({"type": "f4", "endian": "big", "special": [1e20]}, {"_FillValue": np.float32(1e20)}),
        "big_i4": ({"type": "i4", "endian": "big", "high": 2**30, "special": [-5]}, {"_FillValue": np.int32(-5)}),
        "zlib": ({"type": "f4", "zlib": True, "chunks": (1, 7, 11), "special": [np.nan]}, {"_FillValue": np.float32(np.nan)}),
        "chunked": ({"type": "f8", "chunks": (2, 3, 4), "special": [1e36]}, {"_FillValue": 1e36}),
        "default_f4": ({"type": "f4", "special": [netCDF4.default_fillvals["f4"]]}, {}),
        "default_i2": ({"type": "i2", "special": [netCDF4.default_fillvals["i2"]]}, {}),
        "default_i1": ({"type": "i1", "low": -128, "high": 128}, {}),
        "turned": ({"type": "f4", "dims": ("time", "lon", "lat"), "special": [-1]}, {"_FillValue": np.float32(-1)}),
    }
    for name, (kind, attributes) in kinds.items():
        write(folder / f"{name}.nc", kind, **attributes)
    with h5netcdf.legacyapi.Dataset(folder / "h5netcdf.nc", "w") as data:
        for name, size in (("time", 3), ("lat", 4), ("lon", 5)):
            data.createDimension(name, size)
        data.createVariable("time", "f8", ("time",))[:] = [0, 1, 2]
        data.variables["time"].attrs["units"] = "days since 2000-01-01"
        v = data.createVariable("v", "i2", ("time", "lat", "lon"), fill_value=i2(-7))
        v.attrs["scale_factor"] = 0.25
        v[:] = np.arange(60).reshape(3, 4, 5) - 7


def main():
    bad = count = 0
    with tempfile.TemporaryDirectory() as name:
        write_all(pathlib.Path(name))
        for file in [*sorted(pathlib.Path(name).glob("*.nc")), *map(pathlib.Path, sys.argv[2:])]:
            try:
                variables = fields_in(file)
            except OSError as error:
                print(f"{file.name}: {error}")
                continue
            for variable in variables:
                told = compare(file, variable)
                count += 1
                bad += told.startswith("DIFFERS")
                print(f"{file.name} {variable}: {told}")
    print(f"{count} variables, {bad} differ")
    return 1 if bad or not count else 0


sys.exit(main())

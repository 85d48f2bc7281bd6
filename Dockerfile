# The lab, or any other command, in a container:
#   docker build --tag mnistbench .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/out" mnistbench
# With an NVIDIA GPU: docker build --build-arg TORCH_BACKEND=cu130 ..., docker run --gpus all ...
FROM python:3.12-slim

# Which build of torch: cpu, or one for a CUDA version such as cu130; uv knows where it lies.
ARG TORCH_BACKEND=cpu

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY mnistbench mnistbench
RUN pip install --no-cache-dir "uv>=0.7" \
 && uv pip install --system --no-cache --torch-backend="${TORCH_BACKEND}" '.[torch,fast]' \
 && useradd --create-home lab \
 && install --directory --owner=lab --mode=777 /out

# Caches lie where any user may write.
ENV XDG_CACHE_HOME=/tmp/cache \
    MPLCONFIGDIR=/tmp/matplotlib

USER lab
WORKDIR /out
ENTRYPOINT ["mnistbench"]
CMD ["lab"]

# An image that does one thing: lastiterate verify. Build it in the root of the source tree, then
#   docker run --rm --network none -v "$PWD:/certificates:ro" IMAGE certificate.json
# The tag as it was at 3.12.14 (trixie); the digest decides.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
COPY . /source
RUN python -m pip install --no-cache-dir "/source[cli,verify]" && rm -rf /source
USER nobody
WORKDIR /certificates
ENTRYPOINT ["lastiterate", "verify"]

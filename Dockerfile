# An image that does one thing: lastiterate verify. Build it in the root of the source tree, then
#   docker run --rm --network none -v "$PWD:/certificates:ro" IMAGE certificate.json
FROM python:3.12-slim
COPY . /source
RUN python -m pip install --no-cache-dir "/source[cli,verify]" && rm -rf /source
USER nobody
WORKDIR /certificates
ENTRYPOINT ["lastiterate", "verify"]
